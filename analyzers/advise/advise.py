"""All rules asked of one run, and their findings put in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Advice, Finding, Rule, finding
from rlinsight.analyzers.advise.rules import RULES

#: What is an answer though no change is proposed.
_ANSWERS: Final = ("stay synchronous", "fix the tail first")


def advise(case: Case, rules: Sequence[Rule] = RULES) -> Advice:
    """Return the findings in the order of trying.

    Whatever a rule proposes, a change whose effect is predicted must be worth an experiment: gain
    throughput, or make samples fresher without a loss where that is the rule's aim. A
    liveness alarm suppresses them all: advice on a run that stands still is worse than none.
    """
    if case.report.liveness.forbids_tuning:
        alarm = case.report.liveness.alarms[0].sentence
        answer = f"No advice on tuning: {alarm}"
        return Advice(answer, alarm, None, (), {})
    found: list[Finding] = []
    cleared: dict[str, str] = {}
    for rule in rules:
        told = rule.check(case)
        if isinstance(told, str):
            cleared[rule.name] = told
        elif told.effect is not None and not case.serves(rule.aim, told.effect):
            cleared[rule.name] = f"what it would change {case.no_gain(told.effect)}"
        else:
            found.append(finding(rule, told))
    found.sort(key=lambda one: (one.tier, one.costs_quality, -(case.gain(one.effect) or 0.0)))
    kept = _without_repetitions(found, cleared)
    first = next(iter(kept), None)
    code = case.report.run.exit_code
    failed = f"The run failed (exit code {code}): find out why before tuning it. " if code else ""
    return Advice(failed + _answer(first, cleared), None, first, tuple(kept), cleared)


def _without_repetitions(found: Sequence[Finding], cleared: dict[str, str]) -> list[Finding]:
    """Keep the first of findings that ask for the same change."""
    kept: list[Finding] = []
    for one in found:
        asks = set(one.overrides)
        same = [other for other in kept if asks and set(other.overrides) == asks]
        if same:
            cleared[one.rule] = f"asks for the same change as {same[0].rule}"
        else:
            kept.append(one)
    return kept


def _answer(first: Finding | None, cleared: dict[str, str]) -> str:
    if first is not None:
        return f"First: {first.says}"
    told = [text for text in cleared.values() if any(answer in text for answer in _ANSWERS)]
    reason = f" ({'; '.join(told)})" if told else ""
    return f"Nothing to gain: no rule finds a change that is predicted to help{reason}."
