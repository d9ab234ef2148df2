"""The result of a comparison; every renderer works on these objects and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from rlinsight.analyzers.compare.curves import Curve
from rlinsight.analyzers.compare.facts import Fact
from rlinsight.analyzers.compare.progress import Common
from rlinsight.analyzers.compare.series import Series
from rlinsight.analyzers.document import plain_value
from rlinsight.analyzers.gate.attribution import Attribution
from rlinsight.analyzers.gate.observation import Better
from rlinsight.analyzers.gate.result import MetricVerdict, Workload
from rlinsight.analyzers.gate.settings import Correction

COMPARE_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class ComparedRun:
    """A run of the comparison. `steps` are those of its steady window, `windows` its windows.

    `workload` and `attribution` are beside the reference; None for the reference itself, and
    where they are not known.
    """

    name: str
    run_id: str | None
    mode: str | None
    devices: dict[str, int]
    windows: int
    cut: str
    steps: tuple[int, int] | None
    doubts: tuple[str, ...]
    workload: Workload | None
    attribution: Attribution | None
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class MetricRow:
    """A metric of every run beside that of the reference; None where a run does not have it.

    A cell's `direction` is `better` or `worse` where the difference is real: outside the corridor
    and more than noise, corrected over all cells of the table. The reference's own cell
    has no change.
    """

    name: str
    unit: str
    better: Better
    cells: tuple[MetricVerdict | None, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side. `excluded` could not be compared, each with the reason.

    `common` is the part of the training that all runs were compared over, None where each is
    taken over its own steady window; `why_not_common` then says why. `differing` are the keys set
    differently, with the value of each run. `unmatched` are conditions at which runs were not
    matched, since the runs were meant to differ in them. `series` is None for runs that vary
    no single number, and `why_no_series` says so.
    """

    runs: tuple[ComparedRun, ...]
    reference: str
    excluded: dict[str, str]
    common: Common | None
    why_not_common: str | None
    differing: dict[str, tuple[str | None, ...]]
    unmatched: dict[str, str]
    metrics: tuple[MetricRow, ...]
    facts: tuple[Fact, ...]
    series: Series | None
    why_no_series: str | None
    alpha: float
    correction: Correction
    schema_version: int = field(default=COMPARE_SCHEMA_VERSION)

    def row(self, name: str) -> MetricRow | None:
        """Return a metric by name, None where no run has it."""
        return next((row for row in self.metrics if row.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `rlinsight compare --json`; see docs/compare.md."""
        plain: dict[str, Any] = plain_value(self)
        return plain
