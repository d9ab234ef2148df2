"""What the advisor says: findings with their evidence, and the rules that they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from rlinsight.analyzers.simulate.predict import Effect

if TYPE_CHECKING:
    from rlinsight.analyzers.advise.case import Case

ADVICE_SCHEMA_VERSION: Final = 1

#: What an experiment may change: one class at a time, or its effect cannot be attributed.
Variables = Literal["resources", "validation", "batching", "engine", "sync", "staleness", "data"]
#: What a change is for: more throughput, or fresher samples at the same throughput.
Aim = Literal["throughput", "freshness"]
Unit = Literal["ratio", "s", "versions", "tokens", "x", "count"]

#: The order of trying, by what a change costs.
TIERS: Final = {
    1: "rebalance the resources of trainer and rollouts",
    2: "deterministic bubbles: validation, switches, syncs, divisibility",
    3: "useful work per phase: batches, concurrency, tails",
    4: "what may cost quality: staleness and its corrections",
}


@dataclass(frozen=True)
class Evidence:
    """One figure of the report, with the intervals that show it, seconds since the start."""

    what: str
    value: float
    unit: Unit
    windows: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Proposal:
    """What a rule finds in a case.

    `changes` are knobs; `overrides` the exact settings of verl, of knobs and of what is no knob.
    `effect` is None where the simulator has no such knob, or no calibration. `says` is the finding
    and what to do about it, in a sentence or two.
    """

    says: str
    evidence: tuple[Evidence, ...]
    changes: dict[str, object] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    effect: Effect | None = None


@dataclass(frozen=True)
class Rule:
    """One rule: what it asks, when it fires, and what its change risks.

    `verify` says how to see that the change worked, `falsifier` what would show that the rule was
    wrong here. `costs_quality`: the change may cost training quality. `aim`: what it is for, by
    which its prediction and its experiment are judged. `changes_reward`: it changes what is
    rewarded, so that rewards before and after say nothing of each other. `mend_first`: what it
    finds is a defect that makes other figures mean something else, to be mended before anything is
    tuned. `check` returns what it proposes, or why not.
    """

    name: str
    tier: int
    variables: Variables
    asks: str
    fires: str
    risk: str
    verify: str
    falsifier: str
    check: Callable[[Case], Proposal | str]
    costs_quality: bool = False
    aim: Aim = "throughput"
    changes_reward: bool = False
    mend_first: bool = False


@dataclass(frozen=True)
class Finding:
    """A rule's proposal for this run, with all that is needed to try it and to judge the result."""

    rule: str
    tier: int
    variables: Variables
    says: str
    evidence: tuple[Evidence, ...]
    changes: dict[str, object]
    overrides: tuple[str, ...]
    effect: Effect | None
    risk: str
    verify: str
    falsifier: str
    costs_quality: bool
    aim: Aim
    changes_reward: bool
    mend_first: bool


@dataclass(frozen=True)
class Advice:
    """All findings in the order of trying, and what to do first.

    `suppressed` is the liveness alarm that forbids advice on tuning. `first` is one experiment: the
    first finding, alone, since findings of one class of variables would hide each other. `answer`
    is the whole in a sentence; `cleared` says of the other rules why they propose nothing.
    """

    answer: str
    suppressed: str | None
    first: Finding | None
    findings: tuple[Finding, ...]
    cleared: dict[str, str]
    schema_version: int = field(default=ADVICE_SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form of `rlinsight advise --json`; see docs/advisor.md."""
        return asdict(self)


def finding(rule: Rule, proposal: Proposal) -> Finding:
    """Return a rule's proposal as a finding."""
    return Finding(
        rule=rule.name,
        tier=rule.tier,
        variables=rule.variables,
        says=proposal.says,
        evidence=proposal.evidence,
        changes=proposal.changes,
        overrides=proposal.overrides,
        effect=proposal.effect,
        risk=rule.risk,
        verify=rule.verify,
        falsifier=rule.falsifier,
        costs_quality=rule.costs_quality,
        aim=rule.aim,
        changes_reward=rule.changes_reward,
        mend_first=rule.mend_first,
    )
