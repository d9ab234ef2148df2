"""How long caches take to recover after the weights changed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

#: Counters that tell a prefix cache's hit rate, by the names under which they are recorded.
HIT_RATES = ("prefix_cache_hit_rate", "gpu_prefix_cache_hit_rate", "cache_hit_rate")
#: A cache has recovered at this share of its level before the update.
RECOVERED = 0.9


@dataclass(frozen=True)
class CacheWarmUp:
    """Recovery of one replica's hit rate after weight updates; a new version empties the cache.

    `recovery_s` is the median over updates that recovered before the next one,
    `unrecovered` counts those that did not.
    """

    lane: str
    counter: str
    updates: int
    level_before: float
    lowest_after: float
    recovery_s: float | None
    unrecovered: int


def cache_warm_up(counters: pl.DataFrame, markers: pl.DataFrame) -> tuple[CacheWarmUp, ...]:
    """Return the warm-up per replica, from its hit-rate counter and its `param_sync` markers.

    The level before an update is the last value before it, and no update is counted that finds
    nothing cached; recovery is the first value at 90 %
    of that level. Empty where no hit rate was recorded: vLLM's is only there when its
    statistics were.

    Worked example: rate 0.8 before an update at 10 s, 0.1 at 11 s, 0.5 at 14 s, 0.75 at 18 s:
    recovered after 8 s.
    """
    syncs = markers.filter(pl.col("kind") == "param_sync").select("lane", "ts_ns")
    rates = counters.filter(pl.col("name").is_in(HIT_RATES)).sort("ts_ns")
    found = []
    for series in rates.partition_by("lane", "name", maintain_order=True):
        lane = series["lane"][0]
        updates = syncs.filter(pl.col("lane") == lane)["ts_ns"].sort().to_numpy()
        row = _lane(lane, series, updates)
        found += [row] if row is not None else []
    return tuple(sorted(found, key=lambda row: row.lane))


def _lane(lane: str, series: pl.DataFrame, updates: np.ndarray) -> CacheWarmUp | None:
    times, values = series["ts_ns"].to_numpy(), series["value"].to_numpy()
    before, lowest, recovered, missed = [], [], [], 0
    bounds = np.append(updates, times[-1] + 1)
    for update, until in pairwise(bounds):
        first, last = np.searchsorted(times, [update, until])
        if first in (0, last):
            continue
        level, after = values[first - 1], values[first:last]
        if level <= 0:
            continue  # there was no cache to warm up again
        back = np.flatnonzero(after >= RECOVERED * level)
        before.append(level)
        lowest.append(after.min())
        missed += not len(back)
        recovered += [(times[first + back[0]] - update) / 1e9] if len(back) else []
    if not before:
        return None
    return CacheWarmUp(
        lane=lane,
        counter=series["name"][0],
        updates=len(before),
        level_before=float(np.mean(before)),
        lowest_after=float(np.mean(lowest)),
        recovery_s=float(np.median(recovered)) if recovered else None,
        unrecovered=missed,
    )
