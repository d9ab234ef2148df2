"""What is known of one interval, or of a bucket that stands for many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlinsight.webapp.timeline import evidence, records
from rlinsight.webapp.timeline.cells import Ints, cells, ranges
from rlinsight.webapp.timeline.index import NULL
from rlinsight.webapp.timeline.lanes import state_document
from rlinsight.webapp.timeline.query import UnusableError, number

if TYPE_CHECKING:
    from rlinsight.webapp.store import Run
    from rlinsight.webapp.timeline.index import Index

#: Intervals that are counted one by one for a point.
_MOST: Final = 100_000


def detail(index: Index, run: Run, given: Mapping[str, str]) -> dict[str, Any]:
    """Return what is at the time `t` (s) on `row` of `lane`, within `tol` s; of `state` if given.

    The answer is one interval with its record and evidence, or, where several lie within the
    tolerance, how much of that stretch each state covers.
    """
    lane = round(number(given, "lane", -1))
    if not 0 <= lane < len(index.names.lanes):
        raise UnusableError(f"expected a lane of 0-{len(index.names.lanes) - 1}, found {lane}")
    at = round(number(given, "t", 0.0) * 1e9)
    tolerance = max(0, round(number(given, "tol", 0.0) * 1e9))
    series = _series(index, lane, given)
    low, high = max(0, at - tolerance), min(index.names.extent_ns, at + tolerance + 1)
    first, last = index.spans.within(series, low, max(high, low + 1))
    if int((last - first).sum()) > _MOST:
        return _stretch(index, lane, series, low, high)
    items, owner = ranges(first, last)
    if not len(items):
        return {"kind": "nothing", "lane": index.names.lanes[lane].name, "t_s": at / 1e9}
    item = _closest(index, items, at)
    chosen = int(series[owner[items == item][0]])
    found = _interval(index, run, chosen, int(item))
    if len(items) > 1:
        found["nearby"] = _stretch(index, lane, series, low, high)
    return found


def _series(index: Index, lane: int, given: Mapping[str, str]) -> Ints:
    series = index.series_of(lane)
    a = index.arrays
    if "row" in given:
        series = series[a.series_row[series] == round(number(given, "row", 0.0))]
    if "state" in given:
        series = series[a.series_state[series] == round(number(given, "state", 0.0))]
    return series


def _closest(index: Index, items: Ints, at: int) -> int:
    """Return the shortest of the intervals around `at`, else the nearest to it."""
    start, end = index.arrays.start[items], index.arrays.end[items]
    away = np.maximum(np.maximum(start - at, at - end + 1), 0)
    nearest = items[away == away.min()]
    lengths = index.arrays.end[nearest] - index.arrays.start[nearest]
    return int(nearest[np.argmin(lengths)])


def _stretch(index: Index, lane: int, series: Ints, low: int, high: int) -> dict[str, Any]:
    found = cells(index.spans, series, low, high - low, 1)
    first, last = index.spans.within(series, low, high)
    states = []
    for i, one in enumerate(series):
        if last[i] > first[i]:
            state = index.names.states[index.arrays.series_state[one]]
            states.append(
                {
                    **state_document(state),
                    "intervals": int(last[i] - first[i]),
                    "covered_s": int(found.covered[i, 0]) / 1e9,
                    "longest_gap_s": int(found.gap[i, 0]) / 1e9,
                }
            )
    return {
        "kind": "stretch",
        "lane": index.names.lanes[lane].name,
        "start_s": low / 1e9,
        "end_s": high / 1e9,
        "states": states,
    }


def _interval(index: Index, run: Run, series: int, item: int) -> dict[str, Any]:
    a = index.arrays
    lane = index.names.lanes[a.series_lane[series]]
    state = index.names.states[a.series_state[series]]
    is_open = bool(a.open[item])
    start, end = int(a.start[item]), int(a.end[item])
    found: dict[str, Any] = {
        "kind": lane.role if lane.role in {"bubbles", "requests", "device"} else "span",
        "lane": lane.name,
        "lane_number": int(a.series_lane[series]),
        "row": int(a.series_row[series]),
        "state": state_document(state),
        "name": state,
        "start_s": start / 1e9,
        "end_s": None if is_open else end / 1e9,
        "duration_s": None if is_open else (end - start) / 1e9,
        "so_far_s": (end - start) / 1e9 if is_open else None,
        "step": _known(a.step[item]),
        "version": _known(a.version[item]),
    }
    window = (index.names.origin_ns + start, index.names.origin_ns + end)
    if found["kind"] == "span":
        found["fields"] = records.span_fields(run.trace, lane.id, state, window)
    elif found["kind"] == "requests":
        # A request is up to two items, so it is looked up by either of its ends.
        found["fields"] = records.request_fields(run.trace, lane.of or lane.name, window)
    if found["kind"] in {"bubbles", "device"} or state == "wait_samples" or "paused" in state:
        found["evidence"] = evidence.of_window(index, start, end, state, lane)
    return found


def _known(value: Any) -> int | None:
    return None if value == NULL else int(value)
