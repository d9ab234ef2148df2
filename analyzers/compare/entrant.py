"""A run that takes part in a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinsight.analyzers.compare.curves import Curve, curves
from rlinsight.analyzers.compare.progress import Mark, marks
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.observe import observation
from rlinsight.analyzers.report import build
from rlinsight.analyzers.result import Report
from rlinsight.errors import TraceError
from rlinsight.trace.reader import Trace


@dataclass(frozen=True)
class Entrant:
    """A run under the name that it is shown by; `whole` is over all of its steady window."""

    name: str
    trace: Trace = field(repr=False)
    report: Report = field(repr=False)
    whole: Observation = field(repr=False)
    marks: tuple[Mark, ...] = field(repr=False)
    curves: tuple[Curve, ...] = field(repr=False)
    doubts: tuple[str, ...]

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration."""
        return self.trace.manifest.config

    def over(self, window: tuple[int, int] | None) -> Observation:
        """Return the observation over a part (ns) of the steady window."""
        if window is None:
            return self.whole
        info = self.report.window
        start, end = max(window[0], info.start_ns), min(window[1], info.end_ns)
        return observation(self.trace, self.report, (start, end))


def entrant(name: str, trace: Trace, report: Report | None = None) -> Entrant:
    """Return a recorded run ready to be compared; `report` is its analysis where it is at hand.

    A run that failed or stands still takes part with its steady window, and a doubt. Raises
    TraceError for a smoke run, which measures nothing.
    """
    if trace.manifest.notes.get("smoke"):
        raise TraceError("a smoke run checks the plumbing and measures nothing")
    made = build(trace, None, None) if report is None else report
    whole = observation(trace, made)
    return Entrant(
        name=name,
        trace=trace,
        report=made,
        whole=whole,
        marks=marks(made),
        curves=curves(trace, made),
        doubts=whole.doubts,
    )
