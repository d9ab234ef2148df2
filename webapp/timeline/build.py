"""Building the index of a timeline from a trace.

Run as a module it builds into a folder: a process of its own gives its memory back.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.versions import version_windows
from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline import events, gauges, groups, items, pyramid
from rlinsight.webapp.timeline.cells import LONGEST_NS, Ints, Spans
from rlinsight.webapp.timeline.depths import nesting
from rlinsight.webapp.timeline.index import NULL, Array, Arrays, Index, Names, save
from rlinsight.webapp.timeline.lanes import BUBBLES_OF, REQUESTS_OF, TimelineLane, lanes_of

if TYPE_CHECKING:
    from rlinsight.trace.reader import Trace


def build(trace: Trace) -> Index:
    """Return the index of a trace; an empty trace has one without lanes' content."""
    origin, last = trace.time_range or (0, 1)
    extent = max(1, last - origin)
    if extent > LONGEST_NS:
        raise RlinsightError(
            f"expected a recording of at most {_years(LONGEST_NS)} on a timeline, found rows from "
            f"{origin} to {last} ns, {_years(extent)}: one of these times is wrong"
        )
    requests = items.read_requests(trace, last)
    segments, remark = _segments(trace)
    parts = [*items.span_items(trace), items.generation_items(requests)]
    parts += items.request_items(requests)
    if segments is not None:
        parts += [items.device_items(segments), items.bubble_items(segments, trace)]
    table = pl.concat(parts)
    lanes = _lanes(trace, table)
    states = [str(name) for name in table["state"].unique().sort()]
    arrays = _items(table, [lane.id for lane in lanes], states, origin, last)
    spans = Spans.of(arrays["start"], arrays["end"], arrays["bounds"])
    found = pyramid.build(spans, extent)
    levels = {"finest": found.finest, "offset": found.offset}
    arrays |= levels | {"covered": found.covered, "gap": found.gap, "reach": spans.reach}
    lanes = _with_rows(lanes, arrays)
    summed, group_rows = groups.build(spans, lanes, arrays, extent)
    markers = trace.markers.collect()
    measured, gauge_names = gauges.collect(trace, requests, origin)
    points, kinds, reasons = events.markers(markers, [lane.id for lane in lanes], origin)
    versions = version_windows(markers, trace.topology, last)
    marks = events.landmarks(trace, versions, origin, extent)
    names = Names(
        origin_ns=origin,
        extent_ns=extent,
        lanes=tuple(lanes),
        states=tuple(states),
        gauges=tuple(gauge_names),
        marker_kinds=tuple(kinds),
        marker_reasons=tuple(reasons),
        items=len(table),
        devices=len(trace.topology.devices),
        group_rows=group_rows,
        remark=remark,
    )
    return Index(names, Arrays(**arrays, **measured, **points, **marks, **summed))


def _years(span_ns: int) -> str:
    return f"{span_ns / 1e9 / 86400 / 365.25:,.1f} years"


def _segments(trace: Trace) -> tuple[pl.DataFrame | None, str | None]:
    """Return the device ledger of the whole run; a trace that cannot be analyzed has none."""
    if trace.time_range is None or not trace.topology.devices:
        return None, None
    try:
        return trace.analyze(window=trace.time_range).segments, None
    except Exception as error:
        return None, f"no device lanes and bubbles: the analysis failed ({error})"


def _lanes(trace: Trace, table: pl.DataFrame) -> list[TimelineLane]:
    recorded = [str(name) for name in table["lane"].unique()]
    owners = sorted(name for name in recorded if name.startswith(BUBBLES_OF))[::-1]
    requested = {name for name in recorded if name.startswith(REQUESTS_OF)}
    made = {*owners, *requested, *(name for name in recorded if name.startswith("device:"))}
    return lanes_of(
        trace.topology,
        set(recorded) - made,
        [name.removeprefix(BUBBLES_OF) for name in owners],
        {name.removeprefix(REQUESTS_OF) for name in requested},
    )


def _items(
    table: pl.DataFrame, lanes: Sequence[str], states: Sequence[str], origin: int, last: int
) -> dict[str, Any]:
    """Return the arrays of items and series, ordered by lane, row, state and start."""
    coded = table.select(
        pl.col("lane").cast(pl.Enum(lanes)).to_physical().cast(pl.Int32),
        pl.col("state").cast(pl.Enum(states)).to_physical().cast(pl.Int32),
        pl.col("row").fill_null(-1),
        pl.col("step", "version").fill_null(NULL),
        start=pl.col("start_ns") - origin,
        # What takes no time is drawn as 1 ns, so that it is not lost.
        end=pl.max_horizontal(pl.col("end_ns").fill_null(last), pl.col("start_ns") + 1) - origin,
        open=pl.col("end_ns").is_null(),
    ).sort("lane", "start", "end", descending=[False, False, True])
    column = {name: coded[name].to_numpy() for name in coded.columns}
    column["row"] = _rows(column)
    key = (column["lane"].astype(np.int64) * 512 + column["row"]) * len(states) + column["state"]
    order = np.argsort(key, kind="stable")
    key = key[order]
    firsts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))[: len(key)]
    series = {name: column[name][order[firsts]] for name in ("lane", "row", "state")}
    return {
        **{name: column[name][order] for name in ("start", "end", "step", "version", "open")},
        "bounds": np.append(firsts, len(key)).astype(np.int64),
        "series_lane": series["lane"],
        "series_row": series["row"].astype(np.int32),
        "series_state": series["state"],
        "lane_series": np.searchsorted(series["lane"], np.arange(len(lanes) + 1)),
    }


def _rows(column: dict[str, Array]) -> Ints:
    """Return the rows: those given, and by nesting those that are not, below given ones."""
    given = column["row"]
    free = np.flatnonzero(given < 0)
    row = given.astype(np.int64)
    row[free] = nesting(*(column[name][free] for name in ("lane", "start", "end")))
    occupied = np.zeros(int(column["lane"].max(initial=0)) + 1, np.int64)
    occupied[np.unique(column["lane"][given >= 0])] = 1
    row[free] += occupied[column["lane"][free]]
    return row


def _with_rows(lanes: list[TimelineLane], arrays: dict[str, Any]) -> list[TimelineLane]:
    rows = np.zeros(len(lanes), np.int64)
    np.maximum.at(rows, arrays["series_lane"], arrays["series_row"] + 1)
    return [replace(lane, rows=int(count)) for lane, count in zip(lanes, rows, strict=True)]


def main(path: str, folder: str) -> None:
    """Build the index of the trace at `path` into the new folder `folder`."""
    from rlinsight.trace.reader import open_trace

    save(build(open_trace(path)), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
