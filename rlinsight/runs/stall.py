"""No progress: noticed after a while, and explained by the last event of each lane."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from rlinsight.runs.live_state import Event


class StallWatch:
    """Measures how long nothing has happened.

    Anything recorded is progress, except counters, which are sampled in any case. While
    nothing has been recorded yet, new console output is progress too: models take long to
    load. Later it is not: a wedged run goes on logging that it waits.
    """

    def __init__(self, console: Path) -> None:
        self._console = console
        self._last = time.monotonic()
        self._recorded = False
        self._console_bytes = 0
        self.is_reported = False

    def note(self, new_events: int) -> None:
        """Take the number of events that have been recorded since the last call."""
        if new_events:
            self._recorded = True
        if new_events or (not self._recorded and self._console_grew()):
            self._last = time.monotonic()
            self.is_reported = False

    def quiet_s(self) -> float:
        """Return the seconds since the last progress."""
        return time.monotonic() - self._last

    def _console_grew(self) -> bool:
        try:
            size = self._console.stat().st_size
        except OSError:
            return False
        grew, self._console_bytes = size > self._console_bytes, size
        return grew


def explanation(quiet_s: float, last_events: Mapping[str, Event], now_ns: int) -> list[str]:
    """Return the lines that say where a stalled run stands, the longest silent lane first."""
    lines = [f"no progress for {quiet_s:.0f} s; last event per lane:"]
    ordered = sorted(last_events.items(), key=lambda item: item[1].at_ns)
    lines += [f"  {lane}: {event.sentence(now_ns)}" for lane, event in ordered]
    if not last_events:
        lines += ["  nothing has been recorded yet; see console.log"]
    return lines
