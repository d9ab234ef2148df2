"""What to do next: a pure function of the log and the limits.

    smoke run -> baseline -> { the first finding that may be tried -> keep or revert } -> stop

Findings are taken in the advisor's order (the lowest tier first) from the kept run, one at a time:
an experiment changes one class of variables, or its effect could not be attributed. One is left
out when it names no exact override, when it changes the reward or what is held, when it may cost
training quality and that was not allowed, or when the configuration that it leads to has been run
already. The loop stops

* at a **plateau**: no finding is left to try, or the last `patience` experiments gained nothing;
* at the **quality guard**: an experiment cost reward, accuracy or policy agreement;
* at the **budget**: measured runs (`max_runs`, the baseline is one) or hours of runs;
* when the smoke run or the baseline fails: there is nothing to improve on;
* when the kept run shows a defect that is to be mended before anything is tuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlinsight.runs.overrides import split_key
from rlinsight.runs.tune.change import held_by
from rlinsight.runs.tune.findings import is_refusal, possible, to_mend
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Candidate, Kind, Log, Record, Skipped


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
    """End here. `failed`: there was nothing to tune, something to mend, or quality was lost."""

    reason: str
    failed: bool = False


Action = Start | Skip | Stop


def decide(log: Log, limits: Limits) -> Action:
    """Return the next action; the log has no open run."""
    ended = _ended_early(log, limits)
    if ended is not None:
        return ended
    if limits.smoke and not log.of_kind("smoke"):
        return _if_affordable(Start("smoke", log.document), log, limits)
    kept = log.kept
    if kept is None:
        return _if_affordable(Start("baseline", log.to_measure), log, limits)
    defect = to_mend(kept, limits)
    if defect is not None:
        return _mend(kept, defect)
    fruitless = _fruitless(log)
    if fruitless >= limits.patience:
        return Stop(f"plateau: the last {fruitless} experiments gained nothing")
    return _next_experiment(log, kept, limits)


def _ended_early(log: Log, limits: Limits) -> Stop | None:
    for kind in ("smoke", "baseline"):
        for one in log.of_kind(kind):
            if one.decision == "failed":
                return Stop(
                    f"the {kind} run failed: {one.reason}; once that is mended, the same command "
                    "makes it again",
                    failed=True,
                )
    experiments = filter(log.stands, log.of_kind("experiment"))
    lost = (one for one in experiments if one.judged and one.judged.losses)
    return next((_guard(one) for one in lost if not _is_held(one, limits)), None)


def _is_held(lost: Record, limits: Limits) -> bool:
    """Whether a change that cost quality is held since: whoever holds it has looked at it."""
    assert lost.candidate is not None
    return held_by(lost.candidate.overrides, limits.hold) is not None


def _guard(lost: Record) -> Stop:
    assert lost.candidate is not None
    assert lost.judged is not None
    key = split_key(lost.candidate.overrides[0].partition("=")[0])[1]
    return Stop(
        f"quality guard, run {lost.number}: {'; '.join(lost.judged.losses)}; look at it, then "
        f"`--hold {key}` goes on without such a change",
        failed=True,
    )


def _mend(kept: Record, defect: Candidate) -> Stop:
    how = (
        f"put {defect.change} into a configuration of its own and tune that"
        if defect.overrides
        else "once that is mended, the same command measures again"
    )
    return Stop(
        f"{defect.rule}, run {kept.number}: {defect.says.rstrip('.')}; {how}; "
        f"`--despite {defect.rule}` goes on as it is",
        failed=True,
    )


def _next_experiment(log: Log, kept: Record, limits: Limits) -> Action:
    assert kept.measured is not None
    for candidate in kept.measured.candidates:
        document, reason = possible(candidate, kept, log, limits)
        skipped = Skipped(kept.number, candidate.rule, candidate.change, reason or "")
        if document is None and skipped not in log.skipped:
            return Skip(skipped)
        if document is None or _is_refused(candidate, kept, log):
            continue
        start = Start("experiment", document, kept.number, candidate)
        return _if_affordable(start, log, limits)
    if not kept.measured.candidates:
        return Stop(f"plateau: {kept.measured.answer.rstrip('.')}")
    return Stop("plateau: every finding about the kept run was tried or left out")


def _is_refused(candidate: Candidate, kept: Record, log: Log) -> bool:
    key = (kept.number, candidate.rule, candidate.change)
    return any((one.beside, one.rule, one.change) == key for one in filter(is_refusal, log.skipped))


def _fruitless(log: Log) -> int:
    """Return how many experiments since the last kept run were reverted, of those that count."""
    count = 0
    for one in reversed(log.records[log.patience_from :]):
        if one.decision == "kept":
            break
        reverted = one.kind == "experiment" and one.decision == "reverted"
        count += reverted and log.stands(one)
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
