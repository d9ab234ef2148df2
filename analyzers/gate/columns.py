"""The steady windows of a run as columns of sums, out of which every metric is a ratio.

Windows are the version windows that the report's figures are of. Where none were recorded a
window reaches from one training step to the next. The last window often is a sliver between
the last weight sync and the end; it joins its neighbour. More than `MOST` windows are added
up in groups, which keeps a baseline small and neighbouring windows independent. What says whether
a window held something is averaged instead: runs of different lengths are matched on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.device_time.per_window import covered_before
from rlinsight.analyzers.device_time.pools import POOL_NAMES
from rlinsight.analyzers.gate.observation import Column
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.tables import Tables
from rlinsight.trace.topology import Topology

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: More windows than this are added up in groups.
MOST: Final = 64
#: A first or last window that is this much shorter than the median joins its neighbour.
_SLIVER: Final = 0.2
#: Columns that are unknown, not 0, where nothing was recorded in a window.
_NEED: Final = {
    "lengths": "lengths_known",
    "tokens": "tokens_known",
    "step_s": "steps",
    "sync_s": "syncs",
    "lag": "lag_known",
}
#: Columns of shares: a group has the mean of its windows, not their sum.
_SHARES: Final = ("validations", "checkpoints")


def window_edges(report: Report, within: tuple[int, int] | None = None) -> Ints:
    """Return the edges (ns) of the steady windows, one more than there are windows.

    `within` is a part of the report's window, to which the windows are cut.
    """
    start, end = within or (report.window.start_ns, report.window.end_ns)
    inner = [row.start_ns for row in report.versions] or [row.start_ns for row in report.steps]
    edges = np.unique(np.asarray([*(ns for ns in inner if start < ns < end), start, end], np.int64))
    return _without_slivers(edges)


def _without_slivers(edges: Ints) -> Ints:
    if len(edges) < 4:
        return edges
    widths = np.diff(edges)
    kept = np.ones(len(edges), bool)
    kept[1] = widths[0] >= _SLIVER * np.median(widths)
    kept[-2] = widths[-1] >= _SLIVER * np.median(widths)
    found: Ints = edges[kept]
    return found


def window_columns(report: Report, tables: Tables, edges: Ints) -> dict[str, Column]:
    """Return the columns of `Observation.windows`."""
    columns: dict[str, Floats] = {"seconds": np.diff(edges) / 1e9}
    columns |= _trained(tables.samples, edges)
    columns |= _steps(report, edges)
    columns |= _syncs(report, edges)
    columns |= _interruptions(tables.spans, tables.topology, edges)
    columns |= _states(report.segments, tables.topology, edges)
    return {name: _known(name, columns) for name in columns}


def _known(name: str, columns: dict[str, Floats]) -> Column:
    grouped = _grouped(columns[name])
    needed = _grouped(columns[_NEED[name]]) if name in _NEED else np.ones(len(grouped))
    if name in _SHARES:
        grouped = grouped / _grouped(np.ones(len(columns[name])))
    if name == "tokens":  # samples of unknown length are as long as the others of their group
        grouped = grouped * _grouped(columns["samples"]) / np.maximum(needed, 1.0)
        needed = np.where(_grouped(columns["samples"]) > 0, needed, 1.0)
    return tuple(
        float(value) if enough else None for value, enough in zip(grouped, needed, strict=True)
    )


def _grouped(values: Floats) -> Floats:
    size = -(-len(values) // MOST) or 1
    return np.add.reduceat(values, np.arange(0, len(values), size)) if len(values) else values


def _place(times: Sequence[int] | Ints, edges: Ints) -> Ints:
    """Return the window of each time, -1 and `len(edges) - 1` for before and after all."""
    return np.searchsorted(edges, np.asarray(times, np.int64), side="right") - 1


def _sums(place: Ints, values: npt.ArrayLike, windows: int) -> Floats:
    inside = (place >= 0) & (place < windows)
    weights = np.broadcast_to(np.asarray(values, np.float64), place.shape)
    sums = np.bincount(place[inside], weights[inside], windows)[:windows]
    return np.asarray(sums, np.float64)


def _trained(samples: pl.DataFrame, edges: Ints) -> dict[str, Floats]:
    rows = samples.filter((pl.col("fate") == "trained") & pl.col("consumed_ns").is_not_null())
    # No trained sample at all means that none was recorded: the columns are left out.
    if rows.is_empty():
        return {}
    windows, place = len(edges) - 1, _place(rows["consumed_ns"].to_numpy(), edges)
    # The last instant belongs to the last window, as in the report.
    place[rows["consumed_ns"].to_numpy() == edges[-1]] = windows - 1
    response = rows["response_tokens"]
    lag = rows["trained_version"] - rows["version_start"]
    both = rows["prompt_tokens"] + response
    found = {"samples": _sums(place, 1.0, windows)}
    if both.count():
        found["tokens"] = _sums(place, both.fill_null(0).to_numpy(), windows)
        found["tokens_known"] = _sums(place, both.is_not_null().to_numpy(), windows)
    for name, values in (("lengths", response), ("lag", lag)):
        found[name] = _sums(place, values.fill_null(0).to_numpy(), windows)
        found[f"{name}_known"] = _sums(place, values.is_not_null().to_numpy(), windows)
    return found


def _steps(report: Report, edges: Ints) -> dict[str, Floats]:
    place = _place([row.start_ns for row in report.steps], edges)
    lengths = [row.duration_s for row in report.steps]
    windows = len(edges) - 1
    return {"steps": _sums(place, 1.0, windows), "step_s": _sums(place, lengths, windows)}


def _syncs(report: Report, edges: Ints) -> dict[str, Floats]:
    """Return the syncs over the main backend; hybrid replicas are synced by another."""
    if report.sync is None:
        return {}
    main = [s for s in report.sync.syncs if (s.backend or "unknown") == report.sync.main]
    place, windows = _place([sync.start_ns for sync in main], edges), len(edges) - 1
    return {
        "syncs": _sums(place, 1.0, windows),
        "sync_s": _sums(place, [sync.total_s for sync in main], windows),
    }


def _interruptions(spans: pl.DataFrame, topology: Topology, edges: Ints) -> dict[str, Floats]:
    """Return in which windows a validation or a checkpoint fell, by its middle."""
    drivers = [lane.id for lane in topology.lanes if lane.role in ("trainer", "rollouter")]
    ended = spans.filter(pl.col("lane").is_in(drivers) & pl.col("end_ns").is_not_null())
    found = {}
    for name, activity in (("validations", "validate"), ("checkpoints", "checkpoint")):
        mine = ended.filter(pl.col("activity") == activity)
        middle = mine["start_ns"] + (mine["end_ns"] - mine["start_ns"]) // 2
        count = _sums(_place(middle.to_numpy(), edges), 1.0, len(edges) - 1)
        found[name] = np.minimum(count, 1.0)
    return found


def _states(segments: pl.DataFrame, topology: Topology, edges: Ints) -> dict[str, Floats]:
    found = {}
    for pool, name in POOL_NAMES.items():
        devices = [device.id for device in topology.devices if device.pool == pool]
        mine = segments.filter(pl.col("device").is_in(devices)) if devices else segments.clear()
        for state in sorted(map(str, mine["state"].unique().to_list())):
            spent = covered_before(mine.filter(pl.col("state") == state), edges)
            found[f"{name}/{state}"] = np.diff(spent) / 1e9
    return found
