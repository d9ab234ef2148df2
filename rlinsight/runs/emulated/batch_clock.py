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


@dataclass
class BatchClock:
    """The state of one trainer."""

    ready_ns: int = 0

    def waited(self, lasted_s: float, at_least_s: float = WAITED_S) -> None:
        """Something the update depends on has ended, after `lasted_s` real seconds."""
        if lasted_s > at_least_s:
            self.ready_ns = CLOCK.now_ns()


BATCH_CLOCK: Final = BatchClock()
