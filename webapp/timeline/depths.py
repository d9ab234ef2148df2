"""On which row of its lane an interval is drawn: what runs inside another is one row below it."""

from __future__ import annotations

import heapq
import itertools
from typing import Final

import numpy as np

from rlinsight.webapp.timeline.cells import Ints

#: Rows of a lane; what nests deeper is drawn on the last one.
MOST_ROWS: Final = 6
#: Intervals up to which rows of a lane that overlap at random are assigned one by one.
_ONE_BY_ONE: Final = 200_000


def nesting(lane: Ints, start: Ints, end: Ints) -> Ints:
    """Return the row of each interval; the intervals are ordered by lane, start, longest first.

    Worked example: 0-10, 1-4, 2-3 and 5-6 on one lane are on rows 0, 1, 2 and 1.
    """
    row = np.empty(len(lane), np.int64)
    firsts = np.flatnonzero(np.append(True, lane[1:] != lane[:-1]))[: len(lane)]
    for first, last in itertools.pairwise([*firsts, len(lane)]):
        row[first:last] = _rows(start[first:last], end[first:last])
    return np.minimum(row, MOST_ROWS - 1)


def _rows(start: Ints, end: Ints) -> Ints:
    before = np.searchsorted(np.sort(end), start, side="right")
    row: Ints = np.maximum(np.arange(len(start)) - before, 0)
    if len(start) <= _ONE_BY_ONE and _collides(row, start, end):
        return slots(start, end)
    return row


def _collides(row: Ints, start: Ints, end: Ints) -> bool:
    """Whether two intervals on one row overlap: they were not nested."""
    order = np.argsort(row, kind="stable")
    row, start, end = row[order], start[order], end[order]
    return bool(((row[1:] == row[:-1]) & (start[1:] < end[:-1])).any())


def slots(start: Ints, end: Ints) -> Ints:
    """Return for each interval, ordered by start, the lowest slot that is free when it starts.

    Worked example: 0-4, 1-2, 3-6 and 4-5 take the slots 0, 1, 1 and 0.
    """
    taken: list[tuple[int, int]] = []
    free: list[int] = []
    found = np.empty(len(start), np.int64)
    for i, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while taken and taken[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(taken)[1])
        slot = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (finish, slot))
        found[i] = slot
    return found
