"""The clock of a run: real time, or on emulated devices the time that those would have had.

An emulated second passes in `scale` real seconds. The launcher draws one anchor for the whole
run and hands it to every process as `RLINSIGHT_CLOCK`; the processes of one machine share their
monotonic clock, so that all agree on what emulated time it is. Here is the only place where
real time becomes emulated time: whatever is recorded takes its times from `monotonic_ns`.

Worked example: scale 0.1, anchored at epoch time 1000 s. A quarter of a real second later the
run's clock reads 1002.5 s.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

from rlinsight.errors import ConfigError

VARIABLE: Final = "RLINSIGHT_CLOCK"


@dataclass(frozen=True)
class EmulatedClock:
    """Emulated time, from an anchor on the wall clock and one on the monotonic clock (ns)."""

    scale: float
    epoch_ns: int
    monotonic_anchor_ns: int

    def monotonic_ns(self) -> int:
        """Return emulated nanoseconds since the anchor."""
        return round((time.monotonic_ns() - self.monotonic_anchor_ns) / self.scale)

    def offset_ns(self) -> int:
        """Return what makes `monotonic_ns` a time since the Unix epoch."""
        return self.epoch_ns

    def now_ns(self) -> int:
        """Return the run's time since the Unix epoch."""
        return self.monotonic_ns() + self.epoch_ns

    def at(self, real_epoch_ns: int) -> int:
        """Return the run's time at a real time, both since the Unix epoch."""
        return self.epoch_ns + round((real_epoch_ns - self.epoch_ns) / self.scale)

    def to_text(self) -> str:
        """Return the form that the environment variable has."""
        return f"{self.scale!r}:{self.epoch_ns}:{self.monotonic_anchor_ns}"


class RealClock:
    """The time of the machine."""

    scale: Final = 1.0
    monotonic_ns = staticmethod(time.monotonic_ns)
    now_ns = staticmethod(time.time_ns)

    def offset_ns(self) -> int:
        """Return what makes `monotonic_ns` a time since the Unix epoch."""
        return time.time_ns() - time.monotonic_ns()

    def at(self, real_epoch_ns: int) -> int:
        """Return it: the run's time is real time."""
        return real_epoch_ns


RunClock = EmulatedClock | RealClock


def emulated(scale: float) -> EmulatedClock:
    """Return an emulated clock that starts now; an emulated second takes `scale` real ones."""
    return EmulatedClock(scale, time.time_ns(), time.monotonic_ns())


def of(text: str | None) -> RunClock:
    """Return the clock that the variable's value describes; raises ConfigError if it is damaged."""
    if not text:
        return RealClock()
    try:
        scale, epoch, anchor = text.split(":")
        return EmulatedClock(float(scale), int(epoch), int(anchor))
    except ValueError:
        expected = "<scale>:<epoch ns>:<monotonic ns>"
        raise ConfigError(f"expected {VARIABLE}={expected}, found `{text}`") from None


#: The clock of this process.
CLOCK: Final[RunClock] = of(os.environ.get(VARIABLE))
monotonic_ns = CLOCK.monotonic_ns
