"""Tier 3: the last long responses, which hold a batch or a sync."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Proposal, Rule

TAIL: Final = 0.15


def long_tail(case: Case) -> Proposal | str:
    """Partial rollout, then larger sync steps; where neither helps, the lengths themselves."""
    tail = case.report.lengths.tail
    share = tail.share_of_busy if tail is not None else None
    if share is None or share < TAIL:
        return "the tails are not known" if share is None else f"tails cost {share:.1%}"
    effect = case.best(_options(case))
    if effect is None:
        return (
            f"tails cost {share:.0%} of the busy device time, and no setting is predicted to help: "
            "fix the tail first (overlong filtering, a lower maximum length)"
        )
    says = f"Replicas wait {share:.0%} of their busy time half empty for the last long responses."
    shown = case.shown("cost of tails, of busy device time", share, owner="trainer",
                       causes=("long_tail",))  # fmt: skip
    return case.propose(says, (shown,), effect)


def _options(case: Case) -> list[Mapping[str, object]]:
    knobs = case.knobs
    if knobs is None:
        return []
    if knobs.mode == "fully_async" and not knobs.partial_rollout:
        return [{"partial_rollout": True}]
    if knobs.mode in ("fully_async", "separate_async"):
        return [case.less_often()]
    return []


RULES: Final = (
    Rule(
        name="long_tail", tier=3, variables="data", check=long_tail, costs_quality=True,
        asks="Do a few long responses hold everything else?",
        fires=f"tails cost at least {TAIL:.0%} of the busy device time, and partial rollout or a "
        "larger sync step is predicted to gain",
        risk="Long responses span versions; a lower maximum length cuts what may be right.",
        verify="The cost of tails falls.",
        falsifier="One replica is slow, not its responses long: see slow_replica.",
    ),
)  # fmt: skip
