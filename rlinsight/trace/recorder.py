"""The recorder of this process: what `rlinsight.span` and the hooks write to."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rlinsight.errors import TraceError
from rlinsight.trace.intervals import OpenSpan
from rlinsight.trace.writer import TraceWriter

F = TypeVar("F", bound=Callable[..., Any])

_writer: TraceWriter | None = None
_environment_read = False


class NoSpan:
    """What `span` and `begin` return while nothing records."""

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def end(self, **_: Any) -> None:
        """Do nothing."""


_NO_SPAN = NoSpan()


def current() -> TraceWriter | None:
    """Return the recorder of this process, or None while recording is off.

    Inside a managed run (environment variable `RLINSIGHT_TRACE`), the first call starts it.
    """
    if _writer is None and not _environment_read:
        _start_from_environment()
    return _writer


def _start_from_environment() -> None:
    global _environment_read
    _environment_read = True
    path = os.environ.get("RLINSIGHT_TRACE")
    if path:
        start(path)


def start(path: str | os.PathLike[str], *, lane: str | None = None, **options: Any) -> TraceWriter:
    """Start recording this process into the folder `path`.

    `options` are the other arguments of `TraceWriter`, such as `topology`, `mode` and `config`;
    they count only where this call starts the recording.

    Nothing recorded later ever blocks: a full buffer drops rows and counts them. Inside a
    managed run the run's own trace is used, and `lane` becomes the process's lane.
    Raises TraceError when this process records into another folder already.
    """
    global _writer
    managed = os.environ.get("RLINSIGHT_TRACE")
    if _writer is None:
        _writer = TraceWriter(managed or path, lane=lane, **{"on_full": "drop", **options})
    elif managed or _writer.path == Path(path).absolute():
        _writer.lane = lane or _writer.lane
    else:
        raise TraceError(
            f"expected one recording per process, found one into `{_writer.path}`; "
            f"call `rlinsight.stop()` before recording into `{path}`"
        )
    return _writer


def stop() -> None:
    """Write what is buffered and end the recording of this process, if there is one."""
    global _writer
    if _writer is not None:
        writer, _writer = _writer, None
        writer.close()


@contextmanager
def recording(
    path: str | os.PathLike[str], *, lane: str | None = None, **options: Any
) -> Iterator[TraceWriter]:
    """Record this process into `path` for the duration of the block; options as for `start`.

    A recording that was already on, such as a managed run's, goes on after the block.
    """
    was_on = current() is not None
    writer = start(path, lane=lane, **options)
    try:
        yield writer
    finally:
        if was_on:
            writer.flush()
        else:
            stop()


def span(
    activity: str,
    *,
    lane: str | None = None,
    step: int | None = None,
    param_version: int | None = None,
    **attrs: Any,
) -> OpenSpan | NoSpan:
    """Return a context manager that records the block as an interval of `activity`.

    Costs one attribute look-up while nothing records.
    """
    writer = _writer
    if writer is None:
        writer = current()
        if writer is None:
            return _NO_SPAN
    opened = OpenSpan()
    opened.writer = writer
    opened.activity = activity
    opened.lane = lane or writer.lane
    opened.step = step
    opened.param_version = param_version
    opened.attrs = attrs or None
    return opened


def begin(activity: str, **columns: Any) -> OpenSpan | NoSpan:
    """Begin an interval that `.end()` closes; an interval never ended stays in the trace as open.

    Keywords as for `span`.
    """
    opened = span(activity, **columns)
    return opened.__enter__()


def counter(name: str, value: float, *, lane: str | None = None) -> None:
    """Record the value of a gauge now."""
    writer = _writer or current()
    if writer is not None:
        writer.counter(name, value, lane=lane)


def marker(
    kind: str,
    *,
    lane: str | None = None,
    param_version: int | None = None,
    reason: str | None = None,
    **attrs: Any,
) -> None:
    """Record a point event now."""
    writer = _writer or current()
    if writer is not None:
        writer.marker(
            kind, lane=lane, param_version=param_version, reason=reason, attrs=attrs or None
        )


def traced(activity: str, **columns: Any) -> Callable[[F], F]:
    """Decorate a function or coroutine function so that each call is recorded as a span."""

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
                with span(activity, **columns):
                    return await function(*args, **kwargs)

            return traced_coroutine  # type: ignore[return-value]

        @functools.wraps(function)
        def traced_function(*args: Any, **kwargs: Any) -> Any:
            with span(activity, **columns):
                return function(*args, **kwargs)

        return traced_function  # type: ignore[return-value]

    return decorate
