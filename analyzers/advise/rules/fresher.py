"""Tier 4: samples that are older than the throughput needs."""

from __future__ import annotations

import math
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.simulate import Effect

#: A trainer that waits more, for rollouters that have nothing to do for so long, needs the samples
#: that lie ready. Where these are busy all of the time it needs faster ones.
WAITS: Final = 0.05
HELD_BACK: Final = 0.1
#: Samples that are fresher than this cost little off-policy.
OLD: Final = 1.0
_PARTS: Final = (0.0, 0.25, 0.5, 0.75)


def run_ahead(case: Case) -> Proposal | str:
    """The least that rollouts may be ahead by without making the trainer wait.

    Rollouts that run ahead of a trainer which never waits, or which waits for rollouts that are
    busy all of the time, only make samples older: fewer batches to begin with, or a smaller
    staleness, train as many tokens on fresher ones.
    """
    if case.mode() == "sync":
        return "this mode generates nothing ahead"
    lag = case.report.staleness.worst_token.mean_versions
    if lag is None or lag < OLD:
        return "the lag is not known" if lag is None else f"samples are {lag:.2g} versions old"
    waits = case.bubble("trainer", "wait_samples", "long_tail", "poll_interval")
    held_back = case.bubble("rollouter", "staleness_quota", "queue_full", "no_prompts")
    if waits > WAITS and held_back > HELD_BACK:
        return (
            f"the trainer waits {waits:.1%} of its time for rollouters that are held back "
            f"{held_back:.1%} of theirs: samples ahead are what it lacks"
        )
    if case.knobs is None:
        return NOT_CALIBRATED
    effects = [effect for change in _less(case) if (effect := case.effect(change)) is not None]
    effect = next((one for one in effects if case.fresher(one)), None)
    if effect is None:
        return "nothing less is predicted to keep the throughput with fresher samples"
    ahead = case.report.run_ahead
    evidence = [case.shown("mean lag", lag, "versions"),
                case.shown("trainer waits for samples", waits, owner="trainer")]  # fmt: skip
    if ahead is not None and ahead.mean_mini_batches is not None:
        evidence.append(case.shown("mini-batches ahead", ahead.mean_mini_batches, "count"))
    after = effect.after.mean_lag_versions.value
    says = (
        f"The trainer waits {waits:.1%} of its time, and its samples are {lag:.1f} versions old: "
        f"{_named(effect)} is predicted to make that {after:.1f} at the same throughput."
    )
    return case.propose(says, evidence, effect)


def _less(case: Case) -> list[dict[str, object]]:
    """Return the changes to be tried, the one with the freshest samples first."""
    assert case.knobs is not None
    if case.mode() == "fully_async":
        now = case.knobs.staleness_threshold
        parts = dict.fromkeys(round(part * now, 2) for part in _PARTS)
        return [{"staleness_threshold": less} for less in parts if less < now]
    # Without any batch ahead a trainer takes turns with its rollouts.
    now = math.ceil(case.knobs.warm_up_batches)
    return [{"warm_up_batches": batches} for batches in range(1, now)]


def _named(effect: Effect) -> str:
    ((name, value),) = effect.changes.items()
    return f"`{name}` {value}"


RULES: Final = (
    Rule(
        name="run_ahead", tier=4, variables="staleness", check=run_ahead, aim="freshness",
        asks="Do rollouts run further ahead than the trainer needs?",
        fires=f"samples are at least {OLD:.0f} version old; the trainer waits at most {WAITS:.0%}, "
        f"or rollouters idle at most {HELD_BACK:.0%} for want of quota or prompts; and fewer "
        "warm-up batches, in fully_async a smaller staleness, are predicted to make samples "
        "fresher by a quarter at no cost in throughput",
        risk="Less slack for longer responses later in training.",
        verify="The mean lag falls; the trainer waits no longer than before.",
        falsifier="The trainer waits longer: what was ahead covered pauses that are rarer than "
        "the recorded window.",
    ),
)  # fmt: skip
