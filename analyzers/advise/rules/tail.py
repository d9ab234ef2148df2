"""Tier 3: the last long responses, which hold a batch or a sync."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting

TAIL: Final = 0.15
CUT: Final = 0.10
_ROUND: Final = 64
_OVERLONG: Final = "reward.reward_kwargs.overlong_buffer_cfg"


def long_tail(case: Case) -> Proposal | str:
    """Partial rollout, then larger sync steps, then a maximum at the 99 % quantile of lengths.

    Where none is predicted to help, the lengths themselves are to be fixed first.
    """
    tail = case.report.lengths.tail
    share = tail.share_of_busy if tail is not None else None
    if share is None or share < TAIL:
        return "the tails are not known" if share is None else f"tails cost {share:.1%}"
    effect = case.best(_options(case)) or case.best(_lower_maximum(case))
    if effect is None:
        return (
            f"tails cost {share:.0%} of the busy device time, and no setting against them is "
            "predicted to help: fix the tail first (overlong filtering, a lower maximum length)"
        )
    says = f"Replicas wait {share:.0%} of their busy time half empty for the last long responses."
    shown = case.shown("cost of tails, of busy device time", share, owner="trainer",
                       causes=("long_tail",))  # fmt: skip
    return case.propose(says, (shown,), effect)


def _lower_maximum(case: Case) -> list[Mapping[str, object]]:
    """Return the maximum that cuts one response in a hundred, rounded up."""
    longest = case.report.lengths.p99
    if case.knobs is None or longest is None:
        return []
    maximum = math.ceil(longest / _ROUND) * _ROUND
    return [{"max_response_length": maximum}] if maximum < case.knobs.max_response_length else []


def overlong(case: Case) -> Proposal | str:
    """Responses that are cut at the limit are filtered or penalized, so that lengths shrink."""
    share = case.report.lengths.cap.cap_share
    if share is None or share < CUT:
        return "no limit is known" if share is None else f"{share:.1%} of the responses are cut"
    if setting(case.config, f"{_OVERLONG}.enable"):
        return f"{share:.1%} of the responses are cut, and overlong ones are penalized already"
    limit = setting(case.config, "data.max_response_length")
    overrides: tuple[str, ...] = ()
    if isinstance(limit, int):
        # verl's configuration has no such keys, a run's own may: `++` adds or changes them.
        buffer = {"enable": "true", "len": max(1, limit // 4), "penalty_factor": 1.0,
                  "log": "false"}  # fmt: skip
        overrides = (
            "reward.reward_manager.name=dapo",
            f"++reward.reward_kwargs.max_resp_len={limit}",
            *(f"++{_OVERLONG}.{key}={value}" for key, value in buffer.items()),
        )
    says = (
        f"{share:.0%} of the responses are cut at their limit: the longest take most of the time "
        "and end without an answer. Penalize what comes near the limit, or filter it."
    )
    return Proposal(says, (case.shown("responses that reach a limit", share),), {}, overrides)


def _options(case: Case) -> list[Mapping[str, object]]:
    knobs = case.knobs
    if knobs is None:
        return []
    if knobs.mode == "fully_async" and not knobs.partial_rollout:
        return [{"partial_rollout": True}]
    if knobs.mode in ("fully_async", "separate_async"):
        fewer = case.half_the_syncs()
        return [fewer] if fewer is not None else []
    return []


RULES: Final = (
    Rule(
        name="long_tail", tier=3, variables="data", check=long_tail, costs_quality=True,
        asks="Do a few long responses hold everything else?",
        fires=f"tails cost at least {TAIL:.0%} of the busy device time, and partial rollout, a "
        "larger sync step or a lower maximum length is predicted to gain",
        risk="Long responses span versions; a lower maximum length cuts what may be right.",
        verify="The cost of tails falls.",
        falsifier="One replica is slow, not its responses long: see slow_replica.",
    ),
    Rule(
        name="overlong", tier=3, variables="data", check=overlong, costs_quality=True,
        changes_reward=True,
        asks="Are many responses cut at their limit?",
        fires=f"at least {CUT:.0%} of the responses reach a limit, and overlong ones are not "
        "penalized",
        risk="The policy may learn to answer too briefly; the reward manager changes.",
        verify="The share of cut responses falls; accuracy does not.",
        falsifier="Accuracy falls with the lengths: the task needs them.",
    ),
)  # fmt: skip
