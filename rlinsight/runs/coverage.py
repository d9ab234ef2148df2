"""How much of the time something was going on, added up while it goes on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable


class Coverage:
    """The union of intervals, some of them still open. Times in ns.

    Overlapping intervals count once: two requests that run at the same time make a replica
    busy for as long as either runs.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._open: dict[Hashable, int] = {}

    def open(self, key: Hashable, start_ns: int) -> None:
        """Note an interval that has begun; `key` names it until it is closed."""
        self._open[key] = start_ns

    def close(self, key: Hashable, start_ns: int, end_ns: int) -> None:
        """Add an interval that has ended, whether or not it was seen open."""
        self._open.pop(key, None)
        first, last = bisect_left(self._ends, start_ns), bisect_right(self._starts, end_ns)
        if first < last:
            start_ns = min(start_ns, self._starts[first])
            end_ns = max(end_ns, self._ends[last - 1])
        self._starts[first:last] = [start_ns]
        self._ends[first:last] = [end_ns]

    def covered_ns(self, until_ns: int, *, since_ns: int) -> int:
        """Return the time covered between two moments; open intervals last until the end."""
        closed = [
            (max(start, since_ns), min(end, until_ns))
            for start, end in zip(self._starts, self._ends, strict=True)
            if end > since_ns and start < until_ns
        ]
        total = sum(end - start for start, end in closed)
        if not self._open:
            return total
        # All open intervals last until the end, so together they are one.
        begun = max(min(self._open.values()), since_ns)
        twice = sum(max(0, end - max(start, begun)) for start, end in closed)
        return total + max(0, until_ns - begun) - twice
