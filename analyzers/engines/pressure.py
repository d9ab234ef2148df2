"""KV-cache pressure: a replica that is about to preempt, or does.

A full KV cache makes vLLM preempt requests and compute them again, and generation speed
collapses. It announces itself: use rises while the number of running requests does not, since
the running ones grow.

Worked example (vllm#18115): use 0.912, 0.935, 0.958 in steps of 10 s with 8 running and none
waiting rises by 0.0023/s; it is full in 18 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from rlinsight.analyzers.tables import within

Finding = Literal["kv_pressure_rising", "kv_pressure", "preempting"]

#: From this use on a cache is under pressure.
HIGH = 0.9
#: Values of a replica, from the latest back, that are looked at for a rise.
RECENT = 12

_GAUGES = ("kv_cache_usage", "running_requests", "preemptions")


@dataclass(frozen=True)
class KvPressure:
    """One replica under pressure. `full_in_s` extrapolates the rise, None without one.

    `high_share` is the share of recorded time at 0.9 and above; `preemptions` counts those
    that the given rows add, None where they are not recorded. `requests` are those of this replica
    that were in flight while preemptions were counted: what these are to be held against.
    """

    lane: str
    finding: Finding
    usage: float
    peak: float
    rise_per_s: float | None
    full_in_s: float | None
    high_share: float | None
    preemptions: int | None
    requests: int | None


def kv_pressure(counters: pl.DataFrame, requests: pl.DataFrame) -> tuple[KvPressure, ...]:
    """Return the replicas whose KV cache is, or was, nearly full.

    Read from the counters `kv_cache_usage` (0 to 1), `running_requests` and `preemptions` of
    each replica. Preemptions found come first among the findings of a replica.

    Worked example: preemptions of 0 at 10 s and 5 at 30 s, requests over 0-9, 5-15 and 20-40 s:
    5 preemptions over 2 requests.
    """
    gauges = counters.filter(pl.col("name").is_in(_GAUGES))
    high = (pl.col("name") == "kv_cache_usage") & (pl.col("value") >= HIGH)
    preempted = (pl.col("name") == "preemptions") & (pl.col("value") > 0)
    lanes = sorted(gauges.filter(high | preempted)["lane"].unique())
    mine = gauges.filter(pl.col("lane").is_in(lanes)).with_columns(
        pl.col("lane").cast(pl.Enum(lanes))
    )
    found = []
    for part in mine.sort("lane", "ts_ns").partition_by("lane", maintain_order=True):
        series = part.filter(pl.col("name") == "kv_cache_usage")
        row = None if series.is_empty() else _lane(part["lane"][0], series, part, requests)
        found += [row] if row is not None else []
    return tuple(found)


def _lane(
    lane: str, series: pl.DataFrame, counters: pl.DataFrame, requests: pl.DataFrame
) -> KvPressure | None:
    times, values = series["ts_ns"].to_numpy() / 1e9, series["value"].to_numpy()
    preemptions = _preemptions(counters)
    peak = float(values.max())
    if peak < HIGH and not preemptions:
        return None
    rise = _rise_per_s(times, values, _running(counters, series))
    finding: Finding = "kv_pressure" if rise is None else "kv_pressure_rising"
    width = np.diff(times)
    return KvPressure(
        lane=lane,
        finding="preempting" if preemptions else finding,
        usage=float(values[-1]),
        peak=peak,
        rise_per_s=rise,
        full_in_s=(1 - float(values[-1])) / rise if rise else None,
        high_share=float(width[values[:-1] >= HIGH].sum() / width.sum()) if len(width) else None,
        preemptions=preemptions,
        requests=_requests(counters, requests.filter(pl.col("lane") == lane)),
    )


def _rise_per_s(times: np.ndarray, values: np.ndarray, running: np.ndarray) -> float | None:
    """Return the slope of the latest values, None unless they rise and that alone explains it."""
    times, values, running = times[-RECENT:], values[-RECENT:], running[-RECENT:]
    more = np.isfinite(running).all() and running[-1] > running[0]
    if len(values) < 3 or values[-1] < HIGH or (np.diff(values) < 0).any() or more:
        return None
    slope = float(np.polyfit(times - times[0], values, 1)[0])
    return slope if slope > 0 else None


def _running(counters: pl.DataFrame, series: pl.DataFrame) -> np.ndarray:
    """Return the running requests at the times of `series`, not-a-number where unknown."""
    running = counters.filter(pl.col("name") == "running_requests").sort("ts_ns")
    known = series.select("ts_ns").join_asof(running.select("ts_ns", "value"), on="ts_ns")
    values: np.ndarray = known["value"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
    return values


def _preemptions(counters: pl.DataFrame) -> int | None:
    """Return how many preemptions the running total grew by; a reset starts it anew."""
    total = _totals(counters)["value"]
    if total.is_empty():
        return None
    grown = total.diff().fill_null(0)
    return int(pl.select(pl.when(grown < 0).then(total).otherwise(grown).sum()).item())


def _requests(counters: pl.DataFrame, requests: pl.DataFrame) -> int | None:
    """Return how many of a replica's requests touch the time in which preemptions were counted."""
    times = _totals(counters)["ts_ns"]
    if times.is_empty():
        return None
    return len(within(requests, (times[0], times[-1] + 1), "submit_ns", "end_ns"))


def _totals(counters: pl.DataFrame) -> pl.DataFrame:
    return counters.filter(pl.col("name") == "preemptions").sort("ts_ns")
