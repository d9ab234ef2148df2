"""What a window holds, as rows: for people who do not see the canvas, and for spreadsheets."""

from __future__ import annotations

import csv as csv_module
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlinsight.webapp.timeline.cells import cells
from rlinsight.webapp.timeline.lanes import state_document
from rlinsight.webapp.timeline.window import lanes_series

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Index
    from rlinsight.webapp.timeline.window import View


def rows(index: Index, view: View) -> list[dict[str, Any]]:
    """Return, per lane, row and state, how much of the window it covers: exact, in s.

    `longest_gap_s` is the longest stretch of the window in which the state does not hold.
    """
    start, end = max(0, view.start), min(index.names.extent_ns, view.end)
    if start >= end:
        return []
    series = lanes_series(index, view.lanes)
    first, last = index.spans.within(series, start, end)
    held = last > first
    series, count = series[held], (last - first)[held]
    found = cells(index.spans, series, start, end - start, 1)
    a = index.arrays
    made = []
    for i, number in enumerate(series):
        lane = index.names.lanes[a.series_lane[number]]
        state = index.names.states[a.series_state[number]]
        covered, gap = int(found.covered[i, 0]), int(found.gap[i, 0])
        made.append(
            {
                "lane": lane.name,
                "lane_number": int(a.series_lane[number]),
                "row": int(a.series_row[number]),
                "state": state_document(state)["label"],
                "intervals": int(count[i]),
                "covered_s": covered / 1e9,
                "share": covered / (end - start),
                "longest_gap_s": gap / 1e9,
            }
        )
    return made


def csv(found: Sequence[dict[str, Any]]) -> str:
    """Return the rows as CSV; a text that a spreadsheet would compute is kept a text."""
    names = ("lane", "row", "state", "intervals", "covered_s", "share", "longest_gap_s")
    out = io.StringIO()
    writer = csv_module.writer(out)
    writer.writerow(names)
    for row in found:
        writer.writerow([_inert(row[name]) for name in names])
    return out.getvalue()


def _inert(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in set("=+-@\t\r"):
        return "'" + value
    return float(value) if isinstance(value, np.floating) else value
