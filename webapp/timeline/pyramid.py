"""Buckets of every power-of-two width, computed once, so that any view is a look-up.

Bucket b of level k is [b * 2^k, (b + 1) * 2^k) ns from the start of the trace. A series has the
levels in which a bucket holds at least about one of its intervals; finer ones cost less to compute
from the intervals than to keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlinsight.webapp.timeline.cells import Cells, Ints, Spans, cells

#: Intervals per pass of the building: bounds its memory.
_PASS = 1 << 20


@dataclass(frozen=True)
class Pyramid:
    """Covered time and longest gap (ns) of each bucket, one series after the other, finest first.

    `finest` is the lowest level of each series, `offset` where its buckets begin.
    """

    extent: int
    finest: Ints
    offset: Ints
    covered: Ints
    gap: Ints

    @property
    def top(self) -> int:
        """The level in which the whole trace is one bucket."""
        return top_level(self.extent)

    def read(
        self, spans: Spans, series: Ints, level: int, first: int, count: int
    ) -> tuple[Ints, Ints]:
        """Return covered time and longest gap of buckets first:first+count of `level` in ns."""
        covered, gap = (np.empty((len(series), count), np.int64) for _ in range(2))
        kept = self.finest[series] <= level
        if bool(kept.any()):
            at = self._begin(series[kept], level)[:, None] + np.arange(first, first + count)
            covered[kept], gap[kept] = self.covered[at], self.gap[at]
        if not bool(kept.all()):
            found = cells(
                spans, series[~kept], first << level, 1 << level, count, extent=self.extent
            )
            covered[~kept], gap[~kept] = found.covered, found.gap
        return covered, gap

    def _begin(self, series: Ints, level: int) -> Ints:
        sizes = np.array([bucket_count(self.extent, k) for k in range(self.top + 1)], np.int64)
        before = np.concatenate([[0], np.cumsum(sizes)])
        begin: Ints = self.offset[series] + before[level] - before[self.finest[series]]
        return begin


def top_level(extent: int) -> int:
    """Return the lowest level in which `extent` ns fit into one bucket."""
    return max(0, (extent - 1).bit_length())


def bucket_count(extent: int, level: int) -> int:
    """Return how many buckets of a level cover `extent` ns."""
    return max(1, -(-extent // (1 << level)))


def build(spans: Spans, extent: int) -> Pyramid:
    """Return the pyramid of all series over [0, extent)."""
    top = top_level(extent)
    held = np.maximum(np.diff(spans.bounds), 1)
    finest = np.maximum(top - np.floor(np.log2(held)).astype(np.int64), 0)
    sizes = np.array(
        [sum(bucket_count(extent, k) for k in range(low, top + 1)) for low in range(top + 1)]
    )[finest]
    offset = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    covered, gap = (np.empty(offset[-1], np.int64) for _ in range(2))
    for series, level in _passes(finest, held):
        _fill(covered, gap, offset[series], _levels(spans, series, level, top, extent))
    return Pyramid(extent, finest, offset[:-1], covered, gap)


def _passes(finest: Ints, held: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield series that share their finest level, a bounded number of intervals at a time."""
    for level in np.unique(finest):
        series = np.flatnonzero(finest == level).astype(np.int64)
        part = np.cumsum(held[series]) // _PASS
        for number in np.unique(part):
            yield series[part == number], int(level)


def _levels(spans: Spans, series: Ints, level: int, top: int, extent: int) -> Iterator[Cells]:
    found = cells(spans, series, 0, 1 << level, bucket_count(extent, level), extent=extent)
    yield found
    for _ in range(level, top):
        found = found.halved()
        yield found


def _fill(covered: Ints, gap: Ints, begin: Ints, levels: Iterator[Cells]) -> None:
    done = 0
    for found in levels:
        count = found.covered.shape[1]
        at = begin[:, None] + np.arange(done, done + count)
        covered[at], gap[at] = found.covered, found.gap
        done += count
