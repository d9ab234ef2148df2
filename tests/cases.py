"""Reports for the advisor's rules: a recorded one, with the figures that a rule looks at set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import rlinsight
from rlinsight.analyzers.advise import Case
from rlinsight.analyzers.device_time.bubbles import Bubble, CauseTotal
from rlinsight.analyzers.engines.balance import Balance
from rlinsight.analyzers.engines.spread import ReplicaVersions
from rlinsight.analyzers.lengths.statistics import Lengths
from rlinsight.analyzers.quality.guard import Kl, Quality
from rlinsight.analyzers.result import Estimate, Report
from rlinsight.analyzers.simulate import Calibration

SAMPLES = Path(__file__).parent.parent / "sample_traces"
S = 1_000_000_000
Owned = Mapping[tuple[str, str], float]

#: Four replicas of which one would do: an update takes as long as the responses of one.
SPARE = {"rollout_devices": 4, "lengths": (4,), "train_s": 30.0, "staleness_threshold": 1.0}
#: One slot a replica: generation is what takes long.
SHORT = {"rollout_devices": 2, "lengths": (8, 12), "train_s": 1.0, "max_num_seqs": 1,
         "mini_batch": 8, "staleness_threshold": 0.5}  # fmt: skip


@cache
def sample(mode: str) -> Report:
    return rlinsight.open(SAMPLES / mode).analyze()


def report(
    mode: str = "fully_async",
    *,
    idle: Mapping[str, float] | None = None,
    bubbles: Owned | None = None,
    states: Owned | None = None,
    **parts: Any,
) -> Report:
    """A report whose pools idle, wait and work as told: shares of a pool's device time."""
    base = sample(mode)
    pools = {
        name: replace(
            pool,
            device_seconds=100.0,
            idle_ratio=(idle or {}).get(name, 0.0),
            ledger={s: 100.0 * share for (p, s), share in (states or {}).items() if p == name},
        )
        for name, pool in base.pools.items()
    }
    totals = tuple(
        CauseTotal(owner, cause, 1, 100 * share, share, None, 1.0)
        for (owner, cause), share in (bubbles or {}).items()
    )
    start = base.window.start_ns
    largest = tuple(
        Bubble(t.owner, t.cause, start + 10 * S, start + 12 * S, 2.0, t.share, None, (), {})
        for t in totals
    )
    found = replace(base.bubbles, totals=totals, largest=largest)
    return replace(base, pools=pools, bubbles=found, **parts)


def case(
    calibration: Calibration | None,
    mode: str = "fully_async",
    *,
    config: Mapping[str, Any] | None = None,
    wall_clock: bool = False,
    **settings: Any,
) -> Case:
    return Case(report(mode, **settings), config or {}, calibration, wall_clock)


def fired(found: object) -> bool:
    """Whether a rule found something, rather than saying why not."""
    return not isinstance(found, str)


def balance(**parts: Any) -> Balance:
    return replace(sample("fully_async").balance, **parts)


def versions(lagging: bool, skipped: tuple[int, ...] = ()) -> ReplicaVersions:
    return ReplicaVersions("replica1", 7, 3, 12.0, 5.0, 12.0, skipped, lagging)


def quality(**parts: Any) -> Quality:
    return replace(sample("fully_async").quality, **parts)


def kl(times: float, level: str) -> Kl:
    return Kl(times * 3e-4, times * 3e-4, times, level)


def tails(share: float) -> Lengths:
    lengths = sample("fully_async").lengths
    return replace(lengths, tail=replace(lengths.tail, share_of_busy=share))


def predicted(told: Case, changes: dict[str, object], gain: Estimate) -> Case:
    """Return the case where this change is predicted to gain so much, whatever is simulated."""
    effect = told.effect(changes)
    assert effect is not None
    forced = replace(effect, tokens_per_s_per_device=gain)
    told._asked[repr(sorted(changes.items()))] = forced
    return told
