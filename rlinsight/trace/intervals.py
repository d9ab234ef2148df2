"""Intervals that are open while something runs: spans and generation requests."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rlinsight.trace.run_clock import monotonic_ns

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

#: What a reader matches an open row of a request with its closed row by.
_REQUEST_KEY = ("request_id", "submit_ns", "lane", "attempt")


class OpenSpan:
    """A span that has begun. It is a context manager; `end` may also be called by hand.

    Until it ends, every flush writes it with `end_ns` null, so a crash leaves it visible.
    An exception that leaves the block is noted as the attribute `error`.

    Whoever makes one sets its slots: an `__init__` would cost a tenth of what a span costs.
    """

    __slots__ = ("activity", "attrs", "lane", "param_version", "start_ns", "step", "writer")
    activity: str
    attrs: dict[str, Any] | None
    lane: str
    param_version: int | None
    start_ns: int
    step: int | None
    writer: TraceWriter

    def __enter__(self) -> OpenSpan:
        writer = self.writer
        self.start_ns = monotonic_ns() + writer.offset_ns
        writer.spans.open[self] = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        writer = self.writer
        end_ns = monotonic_ns() + writer.offset_ns
        buffer = writer.spans
        if buffer.open.pop(self, self) is self:
            return  # ended before
        if kind is not None:
            self.attrs = {**(self.attrs or {}), "error": kind.__name__}
        row = (
            self.start_ns,
            end_ns,
            self.activity,
            self.lane,
            self.step,
            self.param_version,
            self.attrs,
        )
        flat = buffer.flat
        if len(flat) < buffer.early:
            flat.extend(row)  # as `append` does, without the call
        else:
            buffer.append(row)

    def begun(self, start_ns: int | None) -> OpenSpan:
        """Open the span now, or at `start_ns` (epoch nanoseconds)."""
        if start_ns is None:
            return self.__enter__()
        self.start_ns = start_ns  # before it can be flushed as open: the start is part of its key
        self.writer.spans.open[self] = None
        return self

    def end(
        self,
        *,
        end_ns: int | None = None,
        step: int | None = None,
        param_version: int | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> None:
        """Close the span now, or at `end_ns` (epoch nanoseconds). A second call does nothing."""
        if self.writer.spans.open.pop(self, self) is self:
            return
        self.step = self.step if step is None else step
        self.param_version = self.param_version if param_version is None else param_version
        if attrs:
            self.attrs = {**(self.attrs or {}), **attrs}
        self.writer.spans.append(self.row(self.writer.now_ns() if end_ns is None else end_ns))

    def row(self, end_ns: int | None) -> tuple[Any, ...]:
        """Return the row of table `spans`; `end_ns` None is an open interval."""
        return (
            self.start_ns,
            end_ns,
            self.activity,
            self.lane,
            self.step,
            self.param_version,
            self.attrs,
        )


class OpenRequest:
    """A generation request in flight; a crash leaves it visible with `end_ns` null."""

    __slots__ = ("_writer", "columns")

    def __init__(self, writer: TraceWriter, columns: dict[str, Any]) -> None:
        self._writer = writer
        self.columns = columns
        writer.requests.open[self] = None

    def end(self, *, end_ns: int | None = None, **columns: Any) -> None:
        """Close the request now, or at `end_ns`, adding `columns`. A second call does nothing.

        What identifies the request (its id, lane, submission, attempt) cannot change any more.
        """
        if self._writer.requests.open.pop(self, self) is self:
            return
        end_ns = self._writer.now_ns() if end_ns is None else end_ns
        key = {name: self.columns.get(name) for name in _REQUEST_KEY}
        self.columns = {**self.columns, **columns, **key, "end_ns": end_ns}
        self._writer.request(**self.columns)

    def row(self, end_ns: int | None) -> tuple[Any, ...]:
        """Return the row of table `requests`."""
        return self._writer.request_row(**{**self.columns, "end_ns": end_ns})
