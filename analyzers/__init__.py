"""Pure functions from a trace to typed results; nothing here does I/O or renders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.trace.reader import Trace


def analyze(trace: Trace, window: tuple[int, int] | None = None) -> Report:
    """Return where the device time of `trace` went.

    `window` is (start_ns, end_ns), epoch nanoseconds; without it the window is the trace's
    steady part. Raises TraceError when the trace holds nothing that can be analyzed.
    """
    from rlinsight.analyzers.report import build

    return build(trace, window)


__all__ = ["analyze"]
