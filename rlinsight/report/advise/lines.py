"""Advice as titled paragraphs, which every renderer draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rlinsight.analyzers.advise.finding import TIERS, Advice, Evidence, Finding, Rule
from rlinsight.report.units import number, percent, seconds
from rlinsight.report.whatif.sections import signed, value_text

RULE_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class Paragraph:
    """A finding: its title, what it says, and named lines below."""

    title: str
    says: str
    lines: tuple[tuple[str, str], ...]


def paragraphs(advice: Advice) -> Iterator[Paragraph]:
    """Yield the findings in the order of trying."""
    for place, one in enumerate(advice.findings, 1):
        first = ", try this first" if one is advice.first else ""
        title = f"{place}. {one.rule} (tier {one.tier}: {TIERS[one.tier]}{first})"
        yield Paragraph(title, one.says, tuple(_lines(one)))


def _lines(one: Finding) -> Iterator[tuple[str, str]]:
    for evidence in one.evidence:
        yield "evidence", evidence_text(evidence)
    if one.overrides:
        yield "change", " ".join(one.overrides)
    elif one.changes:
        yield (
            "change",
            ", ".join(f"{name} = {value_text(value)}" for name, value in one.changes.items()),
        )
    yield "effect", _effect(one)
    quality = " (may cost training quality)" if one.costs_quality else ""
    yield "risk", f"{one.risk}{quality}"
    yield "verify", one.verify
    yield "wrong if", one.falsifier


def evidence_text(evidence: Evidence) -> str:
    """Return a figure with the windows that show it: `rollouter idle 31.0 % (60.0-75.0 s)`."""
    windows = ", ".join(f"{start:.1f}-{end:.1f} s" for start, end in evidence.windows)
    return f"{evidence.what} {_value(evidence)} ({windows})" if windows else evidence.what


def _value(evidence: Evidence) -> str:
    if evidence.unit == "ratio":
        return percent(evidence.value)
    if evidence.unit == "s":
        return seconds(evidence.value)
    units = {"x": "times", "count": "", "versions": "versions", "tokens": "tokens"}
    return number(evidence.value, units[evidence.unit])


def _effect(one: Finding) -> str:
    if one.effect is None:
        missing = "does not model what it changes" if one.changes else "has no such knob"
        return f"not predicted: the simulator {missing}"
    effect = one.effect
    lag = effect.after.mean_lag_versions.value
    text = (
        f"{signed(effect.tokens_per_s_per_device)} throughput per device, "
        f"{signed(effect.tokens_per_s)} wall-clock throughput, mean lag {number(lag)} versions"
    )
    assumed = [leap.reason for leap in effect.after.outside]
    return f"{text}; assuming that {'; '.join(assumed)}" if assumed else text


def catalogue(rule: Rule) -> tuple[tuple[str, str], ...]:
    """Return what a rule is about: `rlinsight advise --explain` and docs/advisor.md."""
    return (
        ("asks", rule.asks),
        ("does", _does(rule)),
        ("fires when", rule.fires),
        ("tier", f"{rule.tier}: {TIERS[rule.tier]}; changes {rule.variables}"),
        ("risk", f"{rule.risk}{_warnings(rule)}"),
        ("verify", rule.verify),
        ("wrong if", rule.falsifier),
        *(
            (("aims at", "fresher samples, at the same throughput"),)
            if rule.aim == "freshness"
            else ()
        ),
    )


def _warnings(rule: Rule) -> str:
    said = (
        (rule.costs_quality, " May cost training quality."),
        (rule.changes_reward, " Changes the reward: those before and after cannot be compared."),
        (rule.mend_first, " To be mended before anything is tuned."),
    )
    return "".join(text for applies, text in said if applies)


def rule_document(rule: Rule) -> dict[str, Any]:
    """Return the JSON form of the same."""
    return {
        "schema_version": RULE_SCHEMA_VERSION,
        "rule": rule.name,
        "asks": rule.asks,
        "does": _does(rule),
        "fires": rule.fires,
        "tier": rule.tier,
        "variables": rule.variables,
        "risk": rule.risk,
        "costs_quality": rule.costs_quality,
        "changes_reward": rule.changes_reward,
        "mend_first": rule.mend_first,
        "verify": rule.verify,
        "falsifier": rule.falsifier,
        "aim": rule.aim,
    }


def _does(rule: Rule) -> str:
    return " ".join((rule.check.__doc__ or "").split())
