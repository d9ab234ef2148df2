"""Where the sources write: values, gaps and events, with nothing invented in between.

A value that could not be read is not written. The first failure of a query leaves a marker
`gap` with the reason, its return a marker `gap_end`. A query that the device does not
support is asked once, named in the trace, and never asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rlinsight.collectors.devices.catalogue import CounterName, MarkerKind
    from rlinsight.trace.writer import TraceWriter

T = TypeVar("T")

_REASON_CHARS = 200


class Unsupported(Exception):  # noqa: N818 - an answer of the device, not an error
    """The device will never answer this query; the message says why."""


class Board:
    """What one source may write. Not shared between threads."""

    def __init__(self, writer: TraceWriter, source: str) -> None:
        self._writer = writer
        self._source = source
        self._ts_ns = writer.now_ns()
        self._missed: dict[tuple[str, str], int] = {}
        self.unsupported: dict[str, dict[str, str]] = {}

    def stamp(self) -> int:
        """Take the time that the following values get, in ns since the epoch; return it."""
        self._ts_ns = self._writer.now_ns()
        return self._ts_ns

    def put(self, name: CounterName, value: float | None, lane: str) -> None:
        """Write a value; None and what is not a finite number are missing, not 0."""
        if value is not None and math.isfinite(value):
            self._writer.counter(name, value, lane=lane, ts_ns=self._ts_ns)

    def mark(
        self,
        kind: MarkerKind,
        lane: str,
        reason: str | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> None:
        """Write a point event of this moment."""
        attrs = {"source": self._source, **(attrs or {})}
        self._writer.marker(kind, lane=lane, reason=reason, attrs=attrs)

    def ask(self, lane: str, query: str, call: Callable[[], T]) -> T | None:
        """Return the answer to one query, or None after noting why there is none."""
        if query in self.unsupported.get(lane, {}):
            return None
        try:
            answer = call()
        except Unsupported as answered:
            self.refused(lane, query, _reason(answered))
        except Exception as error:
            self.gap(lane, query, _reason(error))
        else:
            self.answered(lane, query)
            return answer
        return None

    def gap(self, lane: str, query: str, reason: str) -> None:
        """Note that a query had no answer; only the first of a row leaves a marker."""
        missed = self._missed.get((lane, query), 0)
        self._missed[lane, query] = missed + 1
        if missed == 0:
            self.mark("gap", lane, reason, {"query": query})

    def answered(self, lane: str, query: str) -> None:
        """Note that a query has an answer (again)."""
        missed = self._missed.pop((lane, query), 0)
        if missed:
            self.mark("gap_end", lane, None, {"query": query, "missed": missed})

    def refused(self, lane: str, query: str, reason: str) -> None:
        """Name a query that the device does not support; it is not asked again."""
        self.unsupported.setdefault(lane, {})[query] = reason
        # A copy: the writer's thread reads a note while this one goes on adding to it.
        known = {name: dict(queries) for name, queries in self.unsupported.items()}
        self.note(f"unsupported_queries.{self._source}", known)

    def note(self, key: str, value: object) -> None:
        """Store a JSON value for the manifest, under `<key>.<node>`: every node has its own."""
        self._writer.note(f"{key}.{self._writer.node}", value)


class Rate:
    """Turns a growing total into a rate per second; a total that fell back gives None."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def of(self, total: float | None, ts_ns: int) -> float | None:
        """Return the mean rate since the previous call, None when either end is unknown."""
        last, self._last = self._last, None if total is None else (ts_ns, total)
        if last is None or total is None or total < last[1] or ts_ns <= last[0]:
            return None
        return (total - last[1]) * 1e9 / (ts_ns - last[0])


def _reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:_REASON_CHARS]
