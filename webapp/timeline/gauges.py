"""Gauges of a trace: values that hold until the next one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.engines.slots import running_levels
from rlinsight.webapp.timeline.cells import Ints
from rlinsight.webapp.timeline.index import Array, Index

if TYPE_CHECKING:
    from rlinsight.trace.reader import Trace

Floats = npt.NDArray[np.float64]

#: In place of a lane: the sum over all lanes of a gauge that several lanes have.
TOTAL: Final = "*"

#: Requests between their submission and their end, per replica.
IN_FLIGHT: Final = "requests_in_flight"


def collect(
    trace: Trace, requests: pl.DataFrame, origin: int
) -> tuple[dict[str, Array], list[tuple[str, str]]]:
    """Return the arrays of all gauges, and the (name, lane) of each.

    What single processes used is left out: it is no gauge of a lane.
    """
    counters = trace.counters.filter(
        ~pl.col("name").str.starts_with("process_") & pl.col("value").is_finite()
    )
    single = pl.concat([counters.collect(), _in_flight(trace, requests)])
    rows = pl.concat([single, _totals(single)]).sort("name", "lane", "ts_ns", maintain_order=True)
    keys = rows.select("name", "lane").with_row_index("at")
    firsts = keys.group_by("name", "lane", maintain_order=True).agg(pl.col("at").first())
    names = [(str(name), str(lane)) for name, lane in firsts.select("name", "lane").rows()]
    bounds = np.append(firsts["at"].to_numpy(), len(rows)).astype(np.int64)
    ts, value = (rows["ts_ns"] - origin).to_numpy(), rows["value"].to_numpy()
    measured: dict[str, Array] = {
        "gauge_ts": ts,
        "gauge_value": value,
        "gauge_area": _areas(ts, value, bounds),
        "gauge_bounds": bounds,
    }
    return measured, names


def _areas(ts: Ints, value: Floats, bounds: Ints) -> Floats:
    area = np.zeros(len(ts))
    for first, last in itertools.pairwise(bounds):
        held = value[first : last - 1] * np.diff(ts[first:last])
        np.cumsum(held, out=area[first + 1 : last])
    return area


def _totals(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the sum over the lanes of each gauge that several have, whenever one changes."""
    several = pl.col("lane").n_unique().over("name") > 1
    change = pl.col("value") - pl.col("value").shift(1).over("name", "lane").fill_null(0.0)
    changes = rows.filter(several).sort("ts_ns", maintain_order=True).with_columns(change=change)
    moments = changes.group_by("name", "ts_ns", maintain_order=True).agg(pl.col("change").sum())
    return moments.select(
        "ts_ns",
        "name",
        lane=pl.lit(TOTAL),
        value=pl.col("change").cum_sum().over("name"),
    ).select(rows.columns)


def _in_flight(trace: Trace, requests: pl.DataFrame) -> pl.DataFrame:
    lanes = [lane.id for lane in trace.topology.replicas()]
    range_ = trace.time_range
    if requests.is_empty() or range_ is None or not lanes:
        return pl.DataFrame(schema=dict(trace.counters.collect_schema()))
    named = requests.select(pl.col("lane").cast(pl.String), "end_ns", submit_ns="start_ns")
    levels = running_levels(named, lanes, (range_[0], range_[1] + 1))
    return levels.select(
        ts_ns="start_ns",
        name=pl.lit(IN_FLIGHT),
        lane=pl.col("lane").cast(pl.String),
        value=pl.col("running").cast(pl.Float64),
    )


def envelope(
    index: Index, gauge: int, start: int, width: int, count: int
) -> tuple[Floats, Floats, Floats]:
    """Return lowest, highest and time-weighted mean value of a gauge in each bucket.

    Buckets of `width` ns begin at `start`. NaN where nothing was recorded yet. Worked example:
    2 from 0 and 6 from 5, in one bucket of 10, are lowest 2, highest 6 and mean 4.
    """
    ts, value, _ = _of(index, gauge)
    edges = start + width * np.arange(count + 1, dtype=np.int64)
    held = np.searchsorted(ts, edges[:-1], side="right") - 1
    until = np.searchsorted(ts, edges[1:], side="left")
    low = np.maximum(held, 0)
    pairs = np.stack([low, np.maximum(until, low + 1)], axis=1).ravel()
    near = slice(int(low[0]), int(pairs[-1]) + 1)
    padded = np.append(value[near], 0.0)
    pairs = np.minimum(pairs - near.start, len(padded) - 1)
    lowest, highest = (f.reduceat(padded, pairs)[::2] for f in (np.minimum, np.maximum))
    known = (held >= 0) | (until > 0)
    mean = mean_value(index, gauge, start, width, count)
    return np.where(known, lowest, np.nan), np.where(known, highest, np.nan), mean


def mean_value(index: Index, gauge: int, start: int, width: int, count: int) -> Floats:
    """Return the time-weighted mean of a gauge in each bucket, of the time it is known in."""
    ts, value, area = _of(index, gauge)
    edges = np.maximum(start + width * np.arange(count + 1, dtype=np.int64), ts[0])
    held = np.searchsorted(ts, edges, side="right") - 1
    integral = area[held] + value[held] * (edges - ts[held])
    known = np.diff(edges)
    mean: Floats = np.where(known > 0, np.diff(integral) / np.maximum(known, 1), np.nan)
    return mean


def _of(index: Index, gauge: int) -> tuple[Ints, Floats, Floats]:
    a = index.arrays
    mine = slice(*a.gauge_bounds[gauge : gauge + 2])
    return a.gauge_ts[mine], a.gauge_value[mine], a.gauge_area[mine]
