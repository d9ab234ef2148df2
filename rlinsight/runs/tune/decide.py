"""What to do next: a pure function of the log and the limits.

    smoke run -> baseline -> { the first finding that may be tried -> keep or revert } -> stop

Findings are taken in the advisor's order (the lowest tier first) from the kept run, one at a time:
an experiment changes one class of variables, or its effect could not be attributed. One is left
out when it names no exact override, when it changes what is held, when it may cost training quality
and that was not allowed, or when the configuration that it leads to has been run already. The loop
stops

* at a **plateau**: no finding is left to try, or the last `patience` experiments gained nothing;
* at the **quality guard**: an experiment cost reward, accuracy or policy agreement;
* at the **budget**: measured runs (`max_runs`, the baseline is one) or hours of runs;
* when the smoke run or the baseline fails: there is nothing to improve on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlinsight.errors import ConfigError
from rlinsight.runs.tune.change import changed, held_by
from rlinsight.runs.tune.log import Candidate, Kind, Log, Record, Skipped


@dataclass(frozen=True)
class Limits:
    """How far the loop may go; `hours` are of runs, smoke runs included, None without limit.

    `hold` are keys of the configuration that no experiment may change.
    """

    max_runs: int = 8
    hours: float | None = None
    patience: int = 3
    allow_quality_risk: bool = False
    smoke: bool = True
    hold: tuple[str, ...] = ()


@dataclass(frozen=True)
class Start:
    """Run `document`; of an experiment, `candidate` is what it tries."""

    kind: Kind
    document: Mapping[str, Any]
    beside: int | None = None
    candidate: Candidate | None = None


@dataclass(frozen=True)
class Skip:
    """Leave a finding out, for the reason given."""

    skipped: Skipped


@dataclass(frozen=True)
class Stop:
    """End here. `failed`: there was nothing to tune, or quality was lost."""

    reason: str
    failed: bool = False


Action = Start | Skip | Stop


def decide(log: Log, limits: Limits) -> Action:
    """Return the next action; the log has no open run."""
    ended = _ended_early(log)
    if ended is not None:
        return ended
    if limits.smoke and not log.of_kind("smoke"):
        return _if_affordable(Start("smoke", log.document), log, limits)
    kept = log.kept
    if kept is None:
        return _if_affordable(Start("baseline", log.document), log, limits)
    fruitless = _fruitless(log)
    if fruitless >= limits.patience:
        return Stop(f"plateau: the last {fruitless} experiments gained nothing")
    return _next_experiment(log, kept, limits)


def _ended_early(log: Log) -> Stop | None:
    for kind in ("smoke", "baseline"):
        for one in log.of_kind(kind):
            if one.decision == "failed":
                return Stop(f"the {kind} run failed: {one.reason}", failed=True)
    for one in log.of_kind("experiment"):
        if one.judged is not None and one.judged.losses:
            losses = "; ".join(one.judged.losses)
            return Stop(f"quality guard, run {one.number}: {losses}", failed=True)
    return None


def _next_experiment(log: Log, kept: Record, limits: Limits) -> Action:
    assert kept.measured is not None
    for candidate in kept.measured.candidates:
        if _is_out(candidate, kept, log, limits):
            continue
        document, reason = _possible(candidate, kept, log, limits)
        if reason is not None or document is None:
            skipped = Skipped(kept.number, candidate.rule, candidate.change, reason or "")
            return Skip(skipped)
        start = Start("experiment", document, kept.number, candidate)
        return _if_affordable(start, log, limits)
    if not kept.measured.candidates:
        return Stop(f"plateau: {kept.measured.answer.rstrip('.')}")
    return Stop("plateau: every finding about the kept run was tried or left out")


def _is_out(candidate: Candidate, kept: Record, log: Log, limits: Limits) -> bool:
    """Whether a finding was left out, for a reason that these limits have not done away with."""
    key = (kept.number, candidate.rule, candidate.change)
    reasons = {one.reason for one in log.skipped if (one.beside, one.rule, one.change) == key}
    if limits.allow_quality_risk:
        reasons.discard(_quality(candidate))
    held = held_by(candidate.overrides, limits.hold)
    return any(not one.endswith(_HELD) or one == (held and _holds(held)) for one in reasons)


#: How the reason of a finding that is left out ends where `--hold` is the reason.
_HELD: Final = "which --hold leaves as it is"


def _holds(key: str) -> str:
    return f"it changes {key}, {_HELD}"


def _quality(candidate: Candidate) -> str:
    return f"it may cost training quality ({candidate.risk}); --allow-quality-risk tries"


def _possible(
    candidate: Candidate, kept: Record, log: Log, limits: Limits
) -> tuple[Mapping[str, Any] | None, str | None]:
    """Return the configuration of an experiment, or why it is not made."""
    if not candidate.overrides:
        return None, "it names no setting to change: it is for a person to look into"
    held = held_by(candidate.overrides, limits.hold)
    if held is not None:
        return None, _holds(held)
    if candidate.costs_quality and not limits.allow_quality_risk:
        return None, _quality(candidate)
    try:
        document = changed(kept.document, candidate.overrides)
    except ConfigError as error:
        return None, str(error)
    same = next((one for one in log.records if _is_same(one, document)), None)
    if same is not None:
        return None, f"run {same.number} was of this configuration already"
    return document, None


def _is_same(one: Record, document: Mapping[str, Any]) -> bool:
    if one.kind == "smoke" or one.decision in (None, "interrupted"):
        return False
    return one.document == document


def _fruitless(log: Log) -> int:
    """Return how many experiments since the last kept run were reverted."""
    count = 0
    for one in reversed(log.records):
        if one.decision == "kept":
            break
        count += one.kind == "experiment" and one.decision == "reverted"
    return count


def _if_affordable(start: Start, log: Log, limits: Limits) -> Action:
    runs = len(log.of_kind("baseline")) + len(log.of_kind("experiment"))
    if start.kind != "smoke" and runs >= limits.max_runs:
        return Stop(f"budget: {runs} of {limits.max_runs} runs are used")
    if limits.hours is None:
        return start
    spent, longest = _hours(log)
    if spent + longest > limits.hours:
        return Stop(
            f"budget: {spent:.2f} of {limits.hours:g} hours are used, and a run takes about "
            f"{longest:.2f}"
        )
    return start


def _hours(log: Log) -> tuple[float, float]:
    """Return the hours that runs took, and those of the longest full run."""
    took = [
        ((one.ended_s - one.began_s) / 3600, one.kind)
        for one in log.records
        if one.ended_s is not None
    ]
    return sum(t for t, _ in took), max((t for t, kind in took if kind != "smoke"), default=0.0)
