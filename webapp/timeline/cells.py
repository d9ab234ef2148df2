"""What a bucket of time says about a state: how long it was covered, and the longest gap in it.

Problem: ten million intervals must be drawn a thousand pixels wide without hiding anything. A
bucket keeps the covered time and the longest uncovered stretch, both in ns and both exact, so a
bucket that is half covered by one interval is told apart from one covered by a thousand short
ones, and no gap is lost.

Worked example: 0-4 and 7-9 in buckets of 5 cover 4 and 2; the longest gaps are 1 (4-5) and
2 (5-7).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

#: Almost 32 years, in ns: what a timeline can be long, so that no sum of times overflows.
LONGEST_NS: Final = 10**18


@dataclass(frozen=True)
class Spans:
    """Intervals of many series, by series and then start; series i holds bounds[i]:bounds[i+1].

    Times are ns from the start of the trace. `reach` is the running maximum of `end` within a
    series: where intervals of a series overlap, the piece of interval i is what lies between
    the reach before it and its own.
    """

    start: Ints
    end: Ints
    reach: Ints
    bounds: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints, bounds: Ints) -> Spans:
        """Return ordered intervals with their reach; where none overlap it is `end` itself."""
        inner = np.ones(max(0, len(start) - 1), bool)
        firsts = bounds[1:-1]
        inner[firsts[(firsts > 0) & (firsts < len(start))] - 1] = False
        if not bool((inner & (start[1:] < end[:-1])).any()):
            return cls(start, end, end, bounds)
        reach = end.copy()
        for first, last in itertools.pairwise(bounds):
            part = reach[first:last]
            np.maximum.accumulate(part, out=part)
        return cls(start, end, reach, bounds)

    def within(self, series: Ints, start: int, end: int) -> tuple[Ints, Ints]:
        """Return the first and the last interval (excluded) of each series in [start, end)."""
        low, high = self.bounds[series], self.bounds[series + 1]
        first = bisect(self.reach, low, high, start + 1)
        return first, np.maximum(first, bisect(self.start, low, high, end))


@dataclass(frozen=True)
class Cells:
    """One row per series, one column per bucket; `lead` and `trail` are the gaps at its ends (ns).

    Where a bucket is not covered at all, all gaps are its length.
    """

    covered: Ints
    gap: Ints
    lead: Ints
    trail: Ints
    length: Ints

    def halved(self) -> Cells:
        """Return buckets of twice the width; an odd last one stands alone."""
        if self.covered.shape[1] % 2:
            grown = Cells(*(_padded(part) for part in vars(self).values()))
            return grown.halved()
        left, right = (Cells(*(p[..., i::2] for p in vars(self).values())) for i in (0, 1))
        seam = left.trail + right.lead
        return Cells(
            left.covered + right.covered,
            np.maximum(np.maximum(left.gap, right.gap), seam),
            np.where(left.covered > 0, left.lead, left.length + right.lead),
            np.where(right.covered > 0, right.trail, right.length + left.trail),
            left.length + right.length,
        )


def _padded(part: Ints) -> Ints:
    """Append one bucket of no length: nothing is covered in it, and its gaps are 0."""
    return np.concatenate([part, np.zeros((*part.shape[:-1], 1), np.int64)], axis=-1)


def cells(
    spans: Spans, series: Ints, start: int, width: int, count: int, extent: int | None = None
) -> Cells:
    """Return `count` buckets of `width` ns from `start` on for each of `series`.

    Nothing is known beyond `extent` (ns): a bucket ends there, and is no gap behind it.
    """
    stop = start + width * count if extent is None else min(extent, start + width * count)
    length = np.clip(stop - start - np.arange(count, dtype=np.int64) * width, 0, width)
    row, low, high = pieces(spans, series, start, stop)
    cell, low, high = _cut(row, low - start, high - start, width, count)
    whole = np.broadcast_to(length, (len(series), count))
    covered = np.zeros(len(series) * count, np.int64)
    gap, lead, trail = (whole.ravel().copy() for _ in range(3))
    if len(cell):
        first = np.flatnonzero(np.append(True, cell[1:] != cell[:-1]))
        last = np.append(first[1:], len(cell)) - 1
        held = cell[first]
        before = low.copy()  # the gap before each piece, within its bucket
        before[1:] -= np.where(cell[1:] == cell[:-1], high[:-1], 0)
        covered[held] = np.add.reduceat(high - low, first)
        lead[held] = low[first]
        trail[held] -= high[last]
        gap[held] = np.maximum(np.maximum.reduceat(before, first), trail[held])
    shape = (len(series), count)
    return Cells(
        covered.reshape(shape),
        gap.reshape(shape),
        lead.reshape(shape),
        trail.reshape(shape),
        length,
    )


def pieces(spans: Spans, series: Ints, start: int, stop: int) -> tuple[Ints, Ints, Ints]:
    """Return row, start and end of the disjoint pieces of the series, clipped to the window."""
    first, last = spans.within(series, start, stop)
    at, row = ranges(first, last)
    low, high = spans.start[at], spans.reach[at]
    if spans.reach is not spans.end and len(at):
        follows = at > spans.bounds[series][row]
        low = np.where(follows, np.maximum(low, spans.reach[at - 1]), low)
    low, high = np.maximum(low, start), np.minimum(high, stop)
    kept = low < high
    return row[kept], low[kept], high[kept]


def _cut(row: Ints, low: Ints, high: Ints, width: int, count: int) -> tuple[Ints, Ints, Ints]:
    """Cut pieces at the bucket edges: number of the cell, start and end within its bucket."""
    first, last = low // width, (high - 1) // width
    bucket, piece = ranges(first, last + 1)
    base = bucket * width
    low, high = np.maximum(low[piece] - base, 0), np.minimum(high[piece] - base, width)
    return row[piece] * count + bucket, low, high


def ranges(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return all numbers first[i] to last[i] (excluded), one range after the other, and each i."""
    sizes = np.maximum(last - first, 0)
    owner = np.repeat(np.arange(len(first), dtype=np.int64), sizes)
    offset = np.arange(len(owner), dtype=np.int64) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return first[owner] + offset, owner


def bisect(values: Ints, low: Ints, high: Ints, wanted: int | Ints) -> Ints:
    """Return, per range low[i]:high[i] of ascending values, the first place with >= wanted."""
    low, high = low.astype(np.int64), high.astype(np.int64)
    open_ = low < high
    while bool(open_.any()):
        middle = (low + high) >> 1
        less = open_ & (values[np.where(open_, middle, 0)] < wanted)
        low, high = np.where(less, middle + 1, low), np.where(open_ & ~less, middle, high)
        open_ = low < high
    return low
