"""The verdict: what bounds the run, the largest bubble, and what it costs at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rlinsight.analyzers.device_time.bubbles import Bubbles, CauseTotal
from rlinsight.analyzers.device_time.overlap import Overlap
from rlinsight.analyzers.engines.replica_speed import ReplicaSpeed
from rlinsight.analyzers.health.liveness import Liveness
from rlinsight.analyzers.result import PoolReport

Bound = Literal["trainer", "rollout", "pipeline", "balanced", "unknown"]
Confidence = Literal["high", "medium", "low"]

#: Causes of a trainer that waits for responses.
_RESPONSES = ("wait_samples", "long_tail")
#: Idle ratios closer than this are called equal.
MARGIN = 0.05


@dataclass(frozen=True)
class Verdict:
    """`share` is of the owner's pool. `ceiling` is the relative gain in throughput, at most.

    For a bubble of the trainer it is 1 / (1 - share) - 1: steps come that much faster when
    it vanishes. For a bubble of the rollouter it is D / (D - B) - 1, with the job's device
    time D and the bubble's B: per-device throughput when those devices are not needed.
    `slow_replica` is the slowest that is slow given its load, where the largest bubble is a
    trainer's that waits for responses: what looks like a long tail may be that replica.
    """

    bound: Bound
    owner: str | None
    cause: str | None
    share: float | None
    ceiling: float | None
    slow_replica: ReplicaSpeed | None
    confidence: Confidence
    doubts: tuple[str, ...]
    alarm: str | None


def verdict(
    pools: dict[str, PoolReport],
    found: Bubbles,
    overlap: Overlap | None,
    alive: Liveness,
    speeds: Sequence[ReplicaSpeed],
    doubts: Sequence[str],
) -> Verdict:
    """Return the verdict; `overlap` tells whether the two sides work at the same time.

    Each of `doubts` lowers the confidence one grade. A run that stands still gets its alarm
    and no verdict: advice on it would be worse than none.
    """
    if alive.forbids_tuning:
        alarm = alive.alarms[0].sentence
        return Verdict("unknown", None, None, None, None, None, "low", tuple(doubts), alarm)
    largest = _largest(found.totals)
    grades: tuple[Confidence, ...] = ("high", "medium", "low")
    return Verdict(
        bound=bound(pools, alternating=overlap is not None and overlap.alternating),
        owner=largest.owner if largest else None,
        cause=largest.cause if largest else None,
        share=largest.share if largest else None,
        ceiling=ceiling(largest, pools) if largest else None,
        slow_replica=_slow_replica(largest, speeds),
        confidence=grades[min(len(doubts), 2)],
        doubts=tuple(doubts),
        alarm=None,
    )


def bound(pools: dict[str, PoolReport], *, alternating: bool) -> Bound:
    """Return what bounds the run.

    One pool: training and generation take turns on the same devices, `pipeline`. Two pools:
    `pipeline` when they take turns (`overlap.alternating`); else the side that idles less is
    the one the other waits for; `balanced` when their idle ratios differ by less than 5 points.

    Worked example: trainer idle 0.60, rollouter idle 0.02 is `rollout`.
    """
    trainer, rollouter = pools.get("trainer"), pools.get("rollouter")
    if trainer is None or trainer.idle_ratio is None:
        return "unknown"
    if rollouter is None or rollouter.idle_ratio is None:
        return "pipeline" if "generate" in trainer.ledger else "unknown"
    if alternating:
        return "pipeline"
    difference = trainer.idle_ratio - rollouter.idle_ratio
    if abs(difference) < MARGIN:
        return "balanced"
    return "rollout" if difference > 0 else "trainer"


def _largest(totals: Sequence[CauseTotal]) -> CauseTotal | None:
    return max(totals, key=lambda total: total.share, default=None)


def _slow_replica(
    largest: CauseTotal | None, speeds: Sequence[ReplicaSpeed]
) -> ReplicaSpeed | None:
    if largest is None or largest.cause not in _RESPONSES:
        return None
    slow = [speed for speed in speeds if speed.slow]
    return max(slow, key=lambda speed: speed.slowdown or 0.0, default=None)


def ceiling(largest: CauseTotal, pools: dict[str, PoolReport]) -> float | None:
    """Return the relative gain in throughput, at most, when a bubble vanishes; see `Verdict`."""
    if largest.owner == "trainer":
        return 1 / (1 - largest.share) - 1 if largest.share < 1 else None
    total = sum(pool.device_seconds for pool in pools.values())
    rest = total - largest.device_seconds
    return total / rest - 1 if rest > 0 else None
