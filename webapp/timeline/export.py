"""The visible slice as a Chrome trace, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline.cells import ranges
from rlinsight.webapp.timeline.index import NULL
from rlinsight.webapp.timeline.lanes import GROUPS, state_document
from rlinsight.webapp.timeline.window import lanes_series

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Index

#: Intervals and gauge values of a slice; more of them are no longer a slice.
MOST_EVENTS: Final = 500_000

Event = dict[str, Any]


def chrome_trace(index: Index, start: int, end: int, lanes: Sequence[int] | None = None) -> bytes:
    """Return the intervals, markers and gauges in [start, end) ns as JSON.

    A group is a process, each row of a lane a thread. Intervals are whole, also where they reach
    beyond the window; an open one begins and does not end. Times are µs from the start of the
    trace. Raises RlinsightError for more than `MOST_EVENTS` intervals and values.
    """
    chosen = range(len(index.names.lanes)) if lanes is None else lanes
    series = lanes_series(index, chosen)
    first, last = index.spans.within(series, start, end)
    values = _values(index, start, end)
    count = int((last - first).sum()) + sum(len(part) for part in values)
    if count > MOST_EVENTS:
        raise RlinsightError(
            f"expected at most {MOST_EVENTS:,} intervals and gauge values to export, found "
            f"{count:,} in this window: zoom in, or collapse groups"
        )
    at, row = ranges(first, last)
    threads = _threads(index, series[np.unique(row)])
    events = [*_names(index, threads), *_intervals(index, series[row], at, threads)]
    events += _markers(index, start, end, threads)
    events += _gauges(index, values)
    about = {"run_start_ns": str(index.names.origin_ns), "tool": "rlinsight"}
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def _threads(index: Index, series: Any) -> dict[tuple[int, int], tuple[int, int]]:
    """Return process and thread of each (lane, row)."""
    order = [group for group, _ in GROUPS]
    a = index.arrays
    pairs = sorted({(int(a.series_lane[s]), int(a.series_row[s])) for s in series})
    return {
        (lane, row): (order.index(index.names.lanes[lane].group) + 1, number + 1)
        for number, (lane, row) in enumerate(pairs)
    }


def _names(index: Index, threads: dict[tuple[int, int], tuple[int, int]]) -> Iterator[Event]:
    titles = [title for _, title in GROUPS]
    for pid in sorted({pid for pid, _ in threads.values()}):
        yield _meta("process_name", pid, 0, {"name": titles[pid - 1]})
        yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
    for (number, row), (pid, tid) in threads.items():
        lane = index.names.lanes[number]
        kind = " requests" if lane.role == "requests" else ""
        name = f"{lane.name}{kind}" + (f" · {row + 1}" if lane.rows > 1 else "")
        yield _meta("thread_name", pid, tid, {"name": name})
        yield _meta("thread_sort_index", pid, tid, {"sort_index": tid})


def _meta(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _intervals(
    index: Index, series: Any, at: Any, threads: dict[tuple[int, int], tuple[int, int]]
) -> Iterator[Event]:
    a = index.arrays
    drawn = [state_document(name) for name in index.names.states]
    columns = (a.start, a.end, a.step, a.version, a.open)
    values = zip(series.tolist(), *(column[at].tolist() for column in columns), strict=True)
    for number, start, end, step, version, is_open in values:
        state = drawn[a.series_state[number]]
        pid, tid = threads[int(a.series_lane[number]), int(a.series_row[number])]
        event = {"name": state["label"], "cat": state["kind"], "pid": pid, "tid": tid}
        args = {k: v for k, v in (("step", step), ("version", version)) if v != NULL}
        if is_open:
            yield {**event, "ph": "B", "ts": start / 1e3, "args": {**args, "open": True}}
        else:
            yield {**event, "ph": "X", "ts": start / 1e3, "dur": (end - start) / 1e3, "args": args}


def _markers(
    index: Index, start: int, end: int, threads: dict[tuple[int, int], tuple[int, int]]
) -> Iterator[Event]:
    a = index.arrays
    first, last = np.searchsorted(a.marker_ts, (start, end))
    for i in range(int(first), int(min(last, first + MOST_EVENTS))):
        place = threads.get((int(a.marker_lane[i]), 0))
        if place is None:
            continue
        args: Event = {}
        if a.marker_version[i] != NULL:
            args["version"] = int(a.marker_version[i])
        if a.marker_reason[i] >= 0:
            args["reason"] = index.names.marker_reasons[a.marker_reason[i]]
        name = index.names.marker_kinds[a.marker_kind[i]]
        event = {"name": name, "ph": "i", "s": "t", "ts": int(a.marker_ts[i]) / 1e3, "args": args}
        yield {**event, "pid": place[0], "tid": place[1]}


def _values(index: Index, start: int, end: int) -> list[range]:
    """Return, per gauge, the places of its values in the window and of the one before it."""
    found = []
    for low, high in itertools.pairwise(index.arrays.gauge_bounds.tolist()):
        first, last = low + np.searchsorted(index.arrays.gauge_ts[low:high], (start, end))
        found.append(range(max(low, int(first) - 1), int(last)))
    return found


def _gauges(index: Index, values: list[range]) -> Iterator[Event]:
    a = index.arrays
    pid = len(GROUPS) + 1
    yield _meta("process_name", pid, 0, {"name": "Gauges"})
    for (name, lane), places in zip(index.names.gauges, values, strict=True):
        event = {"name": f"{name} {lane}", "ph": "C", "pid": pid, "tid": 0}
        for i in places:
            value = {"value": float(a.gauge_value[i])}
            yield {**event, "ts": int(a.gauge_ts[i]) / 1e3, "args": value}
