"""The result of a check; every renderer works on these objects and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, Literal

from rlinsight.analyzers.document import plain_value
from rlinsight.analyzers.gate.attribution import Attribution
from rlinsight.analyzers.gate.observation import Better
from rlinsight.analyzers.gate.settings import Correction

CHECK_SCHEMA_VERSION: Final = 1

#: What the gate is about; where one of these is judged, a pass needs one of them.
THROUGHPUT: Final = ("tokens_per_s_per_device", "samples_per_s", "step_time_s")

VerdictName = Literal["PASS", "FAIL", "ERROR", "INACTIVE"]
Direction = Literal["worse", "better", "within"]


@dataclass(frozen=True)
class Acceptance:
    """An acknowledged change: `expired` ones no longer excuse a failure."""

    reason: str
    until: date
    expired: bool


@dataclass(frozen=True)
class MetricVerdict:
    """One metric of the run beside its history; numbers are in `unit`, None where not compared.

    `reference` is the mean of the trusted runs at this run's response length and validations,
    `raw_reference` the same as measured, `corridor` the half-width around it. `change` is value -
    reference, `low` and `high` its 95 % interval, `relative` its share of the reference.
    `p_adjusted` is corrected over the metrics of the check, `detectable` the smallest change
    caught in 80 % of cases. A metric that does not `gate` never fails the build.
    """

    name: str
    unit: str
    verdict: VerdictName
    gates: bool
    better: Better
    reason: str
    value: float | None = None
    own_low: float | None = None
    own_high: float | None = None
    reference: float | None = None
    raw_reference: float | None = None
    explained: float | None = None
    matched: tuple[str, ...] = ()
    corridor: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    relative: float | None = None
    direction: Direction | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    detectable: float | None = None
    runs: int = 0
    run_spread: float | None = None
    acknowledged: Acceptance | None = None

    @property
    def fails(self) -> bool:
        """Whether this metric makes the build red."""
        excused = self.acknowledged is not None and not self.acknowledged.expired
        return self.verdict == "FAIL" and self.gates and not excused


@dataclass(frozen=True)
class Workload:
    """The response length of the run beside its history, in tokens.

    `drifted` says that it changed, `matchable` that runs can be compared at equal length all
    the same: this run's mean is not far beyond the lengths of the baseline's windows.
    """

    mean_tokens: float | None
    reference_tokens: float | None
    change: float | None
    low: float | None
    high: float | None
    drifted: bool
    matchable: bool


@dataclass(frozen=True)
class CheckResult:
    """The verdict on a run. `history` names the runs that it was compared with, latest first.

    `ignored` are the keys of the identity that differ and were allowed to, `excluded` the
    runs of the baseline that were left out, each with the reason. `error` is why there was
    nothing to judge: a trace or a baseline that cannot be read or compared.
    """

    run_id: str | None
    identity_key: str
    windows: int
    cut: str
    history: tuple[str, ...]
    excluded: dict[str, str]
    ignored: tuple[str, ...]
    metrics: tuple[MetricVerdict, ...]
    workload: Workload | None
    attribution: Attribution | None
    doubts: tuple[str, ...]
    alpha: float
    correction: Correction
    shadow: bool = False
    error: str | None = None
    schema_version: int = field(default=CHECK_SCHEMA_VERSION)

    @property
    def verdict(self) -> VerdictName:
        """Return the verdict on the run: a failure outweighs an error.

        INACTIVE where not one metric that gates was compared, or none of those that the gate is
        about: an equal weight sync says nothing of a throughput that cannot be matched.
        """
        if self.error is not None:
            return "ERROR"
        if any(metric.fails for metric in self.metrics):
            return "FAIL"
        if any(metric.verdict == "ERROR" for metric in self.metrics):
            return "ERROR"
        gating = [m for m in self.metrics if m.gates]
        about = [m for m in gating if m.name in THROUGHPUT] or gating
        compared = any(m.verdict in ("PASS", "FAIL") for m in about)
        return "PASS" if compared else "INACTIVE"

    @property
    def exit_code(self) -> int:
        """0 pass or inactive, 1 regression, 2 something could not be judged.

        In shadow mode 0, unless there was nothing to judge.
        """
        if self.error is not None:
            return 2
        return 0 if self.shadow else {"FAIL": 1, "ERROR": 2}.get(self.verdict, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `rlinsight check --json`; see docs/check.md."""
        plain: dict[str, Any] = plain_value(self)
        for metric, row in zip(self.metrics, plain["metrics"], strict=True):
            if metric.acknowledged is not None:
                row["acknowledged"]["until"] = metric.acknowledged.until.isoformat()
        return {"verdict": self.verdict, "exit_code": self.exit_code, **plain}


def unusable(run_id: str | None, error: str, *, shadow: bool = False) -> CheckResult:
    """Return the result of a check that could not be made."""
    return CheckResult(
        run_id=run_id,
        identity_key="",
        windows=0,
        cut="",
        history=(),
        excluded={},
        ignored=(),
        metrics=(),
        workload=None,
        attribution=None,
        doubts=(),
        alpha=0.0,
        correction="none",
        shadow=shadow,
        error=error,
    )
