"""When the trainer's batch was there, and since when its devices are free for an update.

Runs in the process that drives training. An update must not begin before its last sample had
arrived, nor before whatever else kept the trainer's devices (a weight sync, a validation, a
checkpoint, a mode switch) had ended. Times are those of the run's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rlinsight.trace.run_clock import CLOCK

#: With a batch: when it was there, on the run's clock.
READY: Final = "rlinsight_ready_ns"
#: A call for a sample that lasted longer (real s) has waited for it; others found it there.
#: So with a weight sync or a validation: verl asks after every update, and mostly there is none.
WAITED_S: Final = 0.02


def could_begin(now_ns: int, ready_ns: int | None, free_ns: int) -> int:
    """Return when the devices could have begun what verl asks for at `now_ns`.

    `ready_ns` is when the batch was there, None where nobody said so (then it is now), and
    `free_ns` when the devices had ended their last work; 0 is not known. Never later than now.
    Worked example: a batch of 50, devices free at 60, asked for at 75: 60.
    """
    known_ns = max(ready_ns or 0, free_ns)
    return now_ns if ready_ns is None or not known_ns else min(now_ns, known_ns)


@dataclass
class BatchClock:
    """The state of one trainer."""

    ready_ns: int = 0

    def waited(self, lasted_s: float, at_least_s: float = WAITED_S) -> None:
        """Something the update depends on has ended, after `lasted_s` real seconds."""
        if lasted_s > at_least_s:
            self.ready_ns = CLOCK.now_ns()


BATCH_CLOCK: Final = BatchClock()
