"""Unions of intervals on plain lists: kernels overlap across streams, and count once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals in order, covering what any of `intervals` covers.

    >>> union([(5, 9), (0, 2), (1, 3)])
    [(0, 3), (5, 9)]
    """
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(disjoint: Iterable[Interval]) -> int:
    """Return the total length of disjoint intervals."""
    return sum(end - start for start, end in disjoint)


def clipped(disjoint: Iterable[Interval], window: Interval) -> list[Interval]:
    """Return the parts of disjoint intervals that lie within `window`."""
    first, last = window
    return [(max(s, first), min(e, last)) for s, e in disjoint if e > first and s < last]


def overlap(one: Sequence[Interval], other: Sequence[Interval]) -> int:
    """Return for how long both of two disjoint, ordered lists are covered."""
    total, i, j = 0, 0, 0
    while i < len(one) and j < len(other):
        total += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total


def shares(disjoint: Sequence[Interval], window: Interval, step: int) -> list[tuple[int, float]]:
    """Return (end, covered share) of each stretch of `step` from the start of `window`.

    The last stretch may be shorter; its share is of its own length.
    """
    found, inside = [], 0
    for start in range(window[0], window[1], step):
        end = min(start + step, window[1])
        while inside < len(disjoint) and disjoint[inside][1] <= start:
            inside += 1
        covered, at = 0, inside
        while at < len(disjoint) and disjoint[at][0] < end:
            covered += min(disjoint[at][1], end) - max(disjoint[at][0], start)
            at += 1
        found.append((end, covered / (end - start)))
    return found
