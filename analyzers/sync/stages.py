"""Weight synchronization: how long, in which stage, and whether it grows.

The driver's stages are spans `other:weight_sync.<stage>` (or, where only the marker
`param_sync` was kept, its attributes `<stage>_s`); what they do not cover of the sync is
`other_s`, so that pause + drain + transfer + memory + resume + other = total, exactly.

| stage | is |
|---|---|
| pause | the driver's `abort` less the drain: telling the replicas to stop |
| drain | from the closing of a replica's gate to its engine being empty, the slowest replica |
| transfer | `build_group` + `transfer`: connecting both sides and moving the weights |
| memory | `release_kv_cache`, `resume_kv_cache`, `sleep`, `wake` |
| resume | letting the replicas generate again |

`stall_s` is what generation loses: the longest time a replica's gate was closed.

Worked example: a sync 0-20 s with abort 0-5 (engines empty at 3), transfer 5-18, resume
18-19: pause 2, drain 3, transfer 13, resume 1, other 1; transfer dominates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rlinsight.analyzers.engines.cache_warm_up import CacheWarmUp, cache_warm_up
from rlinsight.analyzers.quality.trends import theil_sen
from rlinsight.analyzers.significance import kendall_two_sided
from rlinsight.analyzers.sync.records import (
    MEMORY,
    TRANSFER,
    OnReplicas,
    on_replicas,
    recorded_syncs,
)
from rlinsight.trace.topology import Topology

STAGES = ("pause", "drain", "transfer", "memory", "resume", "other")

#: Syncs whose median time in the last third is this much that of the first third have grown.
GROWTH = 2.0
MIN_SYNCS = 6


@dataclass(frozen=True)
class Sync:
    """One weight sync, seconds; None is a stage that was not recorded."""

    version: int | None
    start_ns: int
    total_s: float
    pause_s: float | None
    drain_s: float | None
    transfer_s: float | None
    memory_s: float | None
    resume_s: float | None
    other_s: float | None
    stall_s: float | None
    aborted_requests: int | None
    backend: str | None


@dataclass(frozen=True)
class SyncTrend:
    """Sync time over the run, the first sync (connecting) left out.

    `growth` = median of the last third / median of the first third; `per_sync_s` is the
    Theil-Sen slope. `growing` asks for a growth of 2 and a significant rank correlation.
    """

    syncs: int
    growth: float
    per_sync_s: float
    p_value: float
    growing: bool


@dataclass(frozen=True)
class SyncStages:
    """The syncs over one backend: mean and 95th percentile per stage, the longest stage.

    `trend` is of all syncs of the run, the others are of those in the window.
    """

    syncs: int
    total_s: float
    mean_s: dict[str, float]
    p95_s: dict[str, float]
    dominant: str | None
    trend: SyncTrend | None


@dataclass(frozen=True)
class SyncReport:
    """All syncs, and their stages per backend.

    Hybrid replicas are synced by another backend (`naive`) than standalone ones, and never
    averaged with them; `main` is the backend that takes most time in all.
    """

    syncs: tuple[Sync, ...]
    by_backend: dict[str, SyncStages]
    main: str
    cache_warm_up: tuple[CacheWarmUp, ...]

    @property
    def growing(self) -> bool:
        """Whether the syncs of some backend grow over the run."""
        return any(
            kind.trend is not None and kind.trend.growing for kind in self.by_backend.values()
        )


def syncs(
    spans: pl.DataFrame,
    markers: pl.DataFrame,
    topology: Topology,
    window: tuple[int, int] | None = None,
    counters: pl.DataFrame | None = None,
) -> SyncReport | None:
    """Return the weight syncs of the driver that touch `window` (ns); None where there is none.

    Their trend is of the whole run: a steady window leaves out just what differs. `counters`
    tell how long the replicas' prefix caches take to recover, over the whole run, too.

    Without the driver's spans the markers `param_sync` of the driver tell each sync's time
    and stages.
    """
    rows = whole_run = recorded_syncs(spans, markers, topology)
    if window is not None:
        rows = [r for r in rows if r["start_ns"] < window[1] and r["end_ns"] > window[0]]
    if not rows:
        return None
    replicas = on_replicas(rows, spans, markers, topology)
    found = tuple(_sync(row, replicas[row["start_ns"]]) for row in rows)
    totals_s: dict[str | None, list[float]] = {}
    for row in whole_run:
        totals_s.setdefault(row["backend"], []).append((row["end_ns"] - row["start_ns"]) / 1e9)
    kinds = {
        name or "unknown": _stages([sync for sync in found if sync.backend == name], totals_s[name])
        for name in dict.fromkeys(sync.backend for sync in found)
    }
    main = max(kinds, key=lambda name: kinds[name].total_s)
    warm = () if counters is None else cache_warm_up(counters, markers)
    return SyncReport(found, kinds, main, warm)


def _stages(mine: Sequence[Sync], whole_run_s: Sequence[float]) -> SyncStages:
    values = {
        name: [v for sync in mine if (v := getattr(sync, f"{name}_s")) is not None]
        for name in ("total", *STAGES, "stall")
    }
    mean = {name: float(np.mean(v)) for name, v in values.items() if v}
    return SyncStages(
        syncs=len(mine),
        total_s=sum(sync.total_s for sync in mine),
        mean_s=mean,
        p95_s={name: float(np.quantile(v, 0.95)) for name, v in values.items() if v},
        dominant=dominant({name: mean.get(name) for name in STAGES}),
        trend=trend(whole_run_s),
    )


def dominant(stages: Mapping[str, float | None]) -> str | None:
    """Return the stage that takes longest, None where no stage is known.

    Worked example (marin#8955): pause 5.151 s, broadcast 14.955 s: the broadcast.
    """
    known = {name: seconds for name, seconds in stages.items() if seconds}
    return max(known, key=lambda name: known[name]) if known else None


def trend(totals_s: Sequence[float]) -> SyncTrend | None:
    """Return how sync times develop, None with fewer than six after the first.

    Worked example (verl#4896): from seconds to 25 minutes over a run is growth.
    """
    later = np.asarray(totals_s[1:])
    if len(later) < MIN_SYNCS:
        return None
    third = len(later) // 3
    early, late = float(np.median(later[:third])), float(np.median(later[-third:]))
    growth = late / early if early > 0 else float("inf")
    p_value = kendall_two_sided(later)
    return SyncTrend(
        syncs=len(later),
        growth=growth,
        per_sync_s=theil_sen(later),
        p_value=p_value,
        growing=growth >= GROWTH and p_value < 0.05,
    )


def _sync(row: dict[str, Any], replicas: OnReplicas) -> Sync:
    stages: dict[str, float] = row["stages"]
    total = (row["end_ns"] - row["start_ns"]) / 1e9
    abort = stages.get("abort")
    return Sync(
        version=row["param_version"],
        start_ns=row["start_ns"],
        total_s=total,
        pause_s=None if abort is None else abort - (replicas.drain_s or 0.0),
        drain_s=replicas.drain_s if abort is not None else None,
        transfer_s=_sum_s(stages, TRANSFER),
        memory_s=_sum_s(stages, MEMORY),
        resume_s=stages.get("resume"),
        other_s=total - sum(stages.values()) if stages else None,
        stall_s=replicas.stall_s,
        aborted_requests=replicas.aborted,
        backend=row["backend"],
    )


def _sum_s(stages: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    known = [stages[name] for name in names if name in stages]
    return sum(known) if known else None
