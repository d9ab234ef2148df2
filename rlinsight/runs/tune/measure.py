"""What a finished run showed: its figures, and the advice about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import rlinsight
from rlinsight.errors import ConfigError, RlinsightError, TraceError
from rlinsight.runs.tune.log import Candidate, Measured, Objective

if TYPE_CHECKING:
    from rlinsight.analyzers.advise import Advice
    from rlinsight.analyzers.advise.finding import Finding
    from rlinsight.analyzers.result import Report
    from rlinsight.analyzers.simulate import Effect
    from rlinsight.trace.reader import Trace

#: A relative change, with its interval where that is known.
Predicted = tuple[float, float | None, float | None]

#: A run with fewer steady windows shows nothing.
WINDOWS: Final = 4


def measured(trace: str, exit_code: int | None, objective: Objective) -> Measured:
    """Return what a run of full size showed."""
    problem = failure(trace, exit_code)
    if problem is not None:
        return Measured(problem)
    try:
        opened = rlinsight.open(trace)
        report = opened.analyze()
    except RlinsightError as error:
        return Measured(f"its trace cannot be analyzed: {error}")
    if report.liveness.forbids_tuning:
        return Measured(f"it stands still: {report.liveness.alarms[0].sentence}")
    return _figures(opened, report, objective)


def failure(trace: str, exit_code: int | None) -> str | None:
    """Return why a run did not succeed, None where it did."""
    if exit_code is None:
        return "its exit code is not known"
    if exit_code != 0:
        return f"it ended with exit code {exit_code}; see `console.log` of {trace}"
    try:
        recorded = rlinsight.open(trace).manifest.exit_code
    except RlinsightError as error:
        return f"its trace cannot be read: {error}"
    return f"the training ended with exit code {recorded}" if recorded else None


def _figures(trace: Trace, report: Report, objective: Objective) -> Measured:
    rate = (
        report.throughput.tokens_per_s_per_device
        if objective == "per-device"
        else report.throughput.samples_per_s
    )
    windows = len(report.versions)
    if rate.value is None or windows < WINDOWS:
        return Measured(
            f"it has {windows} steady version windows, and {WINDOWS} are needed to judge by; raise "
            "`steps`",
            windows,
        )
    advice = _advice(trace, report, wall_clock=objective == "wall-clock")
    return Measured(
        problem=None,
        windows=windows,
        value=rate.value,
        low=rate.low,
        high=rate.high,
        figures=dict(_beside(report)),
        answer=advice.answer,
        candidates=tuple(_candidate(one, objective) for one in advice.findings),
        cleared=dict(advice.cleared),
    )


def _beside(report: Report) -> Iterator[tuple[str, float | None]]:
    for name, pool in report.pools.items():
        yield f"{name} idle", pool.idle_ratio
    yield "mean lag", report.staleness.worst_token.mean_versions
    yield "mean reward", report.quality.reward.mean if report.quality.reward else None
    yield "rollout_corr/kl", report.quality.kl.median if report.quality.kl else None
    ahead = report.run_ahead.mean_mini_batches if report.run_ahead else None
    yield "mini-batches ahead", ahead


def _advice(trace: Trace, report: Report, *, wall_clock: bool) -> Advice:
    from rlinsight.analyzers.advise import Case, advise
    from rlinsight.analyzers.simulate import Calibration

    try:
        calibration = Calibration.from_report(trace, report)
    except (TraceError, ConfigError):
        calibration = None
    return advise(Case(report, trace.manifest.config, calibration, wall_clock))


def _candidate(finding: Finding, objective: Objective) -> Candidate:
    from rlinsight.report.advise.lines import evidence_text

    return Candidate(
        rule=finding.rule,
        tier=finding.tier,
        variables=finding.variables,
        says=finding.says,
        evidence=tuple(map(evidence_text, finding.evidence)),
        overrides=finding.overrides,
        predicted=None if finding.effect is None else predicted(finding.effect, objective),
        risk=finding.risk,
        verify=finding.verify,
        falsifier=finding.falsifier,
        costs_quality=finding.costs_quality,
        changes_reward=finding.changes_reward,
        mend_first=finding.mend_first,
        aim=finding.aim,
    )


def predicted(effect: Effect, objective: Objective) -> Predicted | None:
    """Return the relative change of the objective that a change is predicted to make.

    It is of the figure that is measured. By the wall clock that is samples/s: a run trains so many
    samples, and a setting that makes them shorter is done earlier. The simulator pairs tokens/s; of
    samples/s it is that change over the change of a sample's tokens.

    Worked example: tokens/s +10 % (5 to 15 %) with samples of 4/5 of the length: 1.10 / 0.8 - 1 =
    +37.5 % samples/s (31.25 to 43.75 %).
    """
    change = effect.tokens_per_s_per_device if objective == "per-device" else effect.tokens_per_s
    longer = 1.0 if objective == "per-device" else _longer(effect)
    if change.value is None or longer is None:
        return None
    low, high = (None if v is None else (1 + v) / longer - 1 for v in (change.low, change.high))
    return (1 + change.value) / longer - 1, low, high


def _longer(effect: Effect) -> float | None:
    """Return by which factor a sample gets longer."""
    lengths = []
    for one in (effect.before, effect.after):
        tokens, samples = one.tokens_per_s.value, one.samples_per_s.value
        if not tokens or not samples:
            return None
        lengths.append(tokens / samples)
    return lengths[1] / lengths[0]
