"""An alarm, and how long is too long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AlarmKind = Literal["open_phase", "no_progress", "near_full_stall", "dead_process", "dead_engine"]

#: A silence is a stall at this many times what is usual in the run ...
FACTOR = 6.0
#: ... and not below this many seconds, since short phases vary most.
FLOOR_S = 300.0
#: Without anything usual to compare with: models may take long to load.
UNKNOWN_FLOOR_S = 1800.0


@dataclass(frozen=True)
class Alarm:
    """Something that stands still. `for_s` is how long, `limit_s` how long is tolerated."""

    kind: AlarmKind
    lane: str
    since_ns: int
    for_s: float
    limit_s: float
    sentence: str
    evidence: dict[str, float | str]


def limit_s(usual_s: float | None, floor_s: float = FLOOR_S) -> float:
    """Return how long something may take that usually takes `usual_s` seconds."""
    if usual_s is None:
        return max(UNKNOWN_FLOOR_S, floor_s)
    return max(FACTOR * usual_s, floor_s)
