"""What verl logs in real seconds, in the time of the run's clock.

verl measures with the machine's clock, also where the devices are emulated and their time is
another. Durations are divided by the time scale and rates multiplied with it; ratios and counts
stay. What verl logs about the machine's own work (model flops, memory) says nothing about an
emulated device and is left out. verl's own log file keeps the numbers as they are.

Worked example, at a scale of 0.1: `timing_s/step` 0.8 s becomes 8 s, `perf/throughput` 1000
tokens/s becomes 100 tokens/s.
"""

from __future__ import annotations

import re

from rlinsight.trace.run_clock import CLOCK, EmulatedClock, RunClock

_DURATION = re.compile(
    r"^timing_s/|^timing_per_token_ms/|_times?(_s)?$|_time/|_seconds$|_duration_s$|time_per_step$"
)
#: What looks like a duration and is none: verl describes the slowest request under `timing_s/`,
#: and notes at what time of day replicas joined and left.
_COUNT = re.compile(r"length|num_preempted|/num_|/last_\w+_time$")
_RATE = re.compile(r"^perf/throughput$")
_OF_THE_MACHINE = re.compile(r"perf/(mfu|max_memory|cpu_memory)")


def in_run_time(key: str, value: float, clock: RunClock = CLOCK) -> float | None:
    """Return a logged number in the run's time, None for one that has no meaning there."""
    if not isinstance(clock, EmulatedClock):
        return value
    if _OF_THE_MACHINE.search(key):
        return None
    if _RATE.search(key):
        return value * clock.scale
    if _DURATION.search(key) and not _COUNT.search(key):
        return value / clock.scale
    return value
