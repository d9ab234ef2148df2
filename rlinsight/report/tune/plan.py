"""What a tuning would do next: `rlinsight tune --dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rlinsight.errors import PreflightError
from rlinsight.report.tune.words import predicted
from rlinsight.report.units import counted
from rlinsight.runs.tune.again import taken_up
from rlinsight.runs.tune.decide import Action, Skip, Start, Stop, decide
from rlinsight.runs.tune.findings import refused
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Log, Skipped

PLAN_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class Plan:
    """`lines` for people; `action` and its `document` for scripts, None where nothing is run."""

    lines: tuple[str, ...]
    action: str
    document: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema_version": PLAN_SCHEMA_VERSION, **asdict(self)}


def plan(log: Log, limits: Limits, refusal: Callable[[Mapping[str, Any]], str | None]) -> Plan:
    """Return the next run and why, with the findings that are left out on the way to it.

    Raises PreflightError where the smoke run or the baseline would be refused.
    """
    log = taken_up(log, limits)
    if log.open is not None:
        return Plan(tuple(_state(log, limits)), "wait", None)
    skipped: list[Skipped] = []
    while True:
        action = decide(replace(log, skipped=(*log.skipped, *skipped)), limits)
        left_out = _left_out(action, refusal)
        if left_out is None:
            break
        skipped.append(left_out)
    lines = [*_state(log, limits), *(f"left out: {one.rule}: {one.reason}" for one in skipped)]
    if isinstance(action, Start):
        return Plan((*lines, *_start(action)), action.kind, dict(action.document))
    assert isinstance(action, Stop)
    return Plan((*lines, f"nothing would be run: {action.reason}"), "stop", None)


def _left_out(action: Action, refusal: Callable[[Mapping[str, Any]], str | None]) -> Skipped | None:
    if isinstance(action, Skip):
        return action.skipped
    if not isinstance(action, Start) or (why := refusal(action.document)) is None:
        return None
    if action.candidate is None:
        raise PreflightError(why)
    return refused(action.candidate, action.beside, why)


def _state(log: Log, limits: Limits) -> Iterator[str]:
    hours = "no limit of hours" if limits.hours is None else f"at most {limits.hours:g} hours"
    risk = "may" if limits.allow_quality_risk else "may not"
    yield f"tuning {log.name} for {log.objective} throughput, in {log.folder}"
    yield (
        f"at most {counted(limits.max_runs, 'run')} of full size, {hours}; ends after "
        f"{counted(limits.patience, 'experiment')} in a row without a gain; {risk} try what "
        "may cost training quality"
    )
    if limits.hold:
        yield f"left as it is: {', '.join(limits.hold)}"
    if limits.despite:
        yield f"no reason to stop: {', '.join(limits.despite)}"
    if log.open is not None:
        yield (
            f"first: run {log.open.number} ({log.open.kind}), which was begun and not decided on: "
            "it is waited for, used if it has ended, or made again; what is next depends on it"
        )
    if log.kept is not None:
        yield f"kept so far: run {log.kept.number}"


def _start(action: Start) -> Iterator[str]:
    if action.candidate is None:
        yield f"next run: {action.kind}, preflight passed"
        if action.kind == "smoke":
            yield "then: the baseline, with its findings; then one experiment after the other"
        return
    one = action.candidate
    yield f"next run: {one.rule} (tier {one.tier}, {one.variables}): {one.says}"
    yield from (f"  evidence: {text}" for text in one.evidence)
    yield f"  change: {one.change}"
    yield f"  predicted: {predicted(one)}"
