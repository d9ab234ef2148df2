"""Pure functions from a trace to typed results; nothing here does I/O or renders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlinsight.analyzers.memory import keep_freed_memory

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.trace.reader import Trace


def analyze(
    trace: Trace,
    window: tuple[int, int] | None = None,
    lanes: Sequence[str] | None = None,
) -> Report:
    """Return where the device time of `trace` went.

    `window` is (start_ns, end_ns), epoch nanoseconds; without it the window is the trace's
    steady part. `lanes` restricts the device time to the devices of these lanes. Raises
    TraceError when the trace holds nothing that can be analyzed, or no such lane.
    """
    keep_freed_memory()
    from rlinsight.analyzers.report import build

    return build(trace, window, lanes)


__all__ = ["analyze"]
