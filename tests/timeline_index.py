"""What the tests of the timeline's answers share: a run of one trace, and what a view draws."""

from __future__ import annotations

import rlinsight
from rlinsight.webapp.timeline.window import View, answer
from rlinsight.webapp.timeline.wire import unpack


class Run:
    """Of a run of the served folder, what the answers need."""

    id, name, live, stamp = "run", "run", False, "1"

    def __init__(self, trace: rlinsight.Trace) -> None:
        self.trace = trace


def number_of(index, lane_id: str) -> int:
    number = index.lane_number(lane_id)
    assert number is not None
    return number


def drawn(index, view: View) -> dict[str, list[tuple[str, int, float, float]]]:
    """Lane -> (state, row, start, end) of all plain intervals, in seconds of the trace."""
    header, arrays = unpack(answer(index, view))
    found: dict[str, list[tuple[str, int, float, float]]] = {}
    bounds = arrays["item_bounds"]
    for i, lane in enumerate(arrays["series_lane"]):
        for item in range(bounds[i], bounds[i + 1]):
            start = header["from_s"] + float(arrays["item_start"][item])
            end = start + float(arrays["item_length"][item])
            state = index.names.states[arrays["series_state"][i]]
            row = (state, int(arrays["series_row"][i]), round(start, 3), round(end, 3))
            found.setdefault(index.names.lanes[lane].id, []).append(row)
    return {lane: sorted(rows, key=lambda row: row[2]) for lane, rows in found.items()}


def whole(index, *lanes: str, **more) -> View:
    numbers = tuple(number_of(index, lane) for lane in lanes)
    return View(0, index.names.extent_ns, 1000, numbers, **more)
