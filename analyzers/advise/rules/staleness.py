"""Tier 4: staleness up to its plateau, and what corrects for it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting
from rlinsight.analyzers.simulate import Effect

WAITS: Final = 0.08
#: Waits that differ by less are the same: the plateau.
PLATEAU: Final = 0.02
_STEP: Final = 0.1
#: A reward whose volatility is this large beside its mean is not stable.
VOLATILE: Final = 0.5
#: From this part of an update on, staleness covers one in part only.
BEYOND: Final = 0.05
#: Without a proximal policy of its own (decoupled PPO) staleness is kept lower.
SAFE: Final = 0.5
SAFE_DECOUPLED: Final = 1.0


def raise_staleness(case: Case) -> Proposal | str:
    """The least staleness at which the trainer's wait no longer falls."""
    if case.mode() != "fully_async":
        return "only fully_async has a staleness threshold"
    if case.knobs is None:
        return NOT_CALIBRATED
    waits = case.bubble("trainer", "wait_samples", "long_tail")
    if waits < WAITS:
        return f"the trainer waits {waits:.1%} of its time"
    if (kl := case.report.quality.kl) is not None and kl.level != "healthy":
        return f"rollout_corr/kl is {kl.level}: more staleness would cost quality"
    if (unstable := _unstable(case)) is not None:
        return f"{unstable}: more staleness would cost quality"
    now, limit = case.knobs.staleness_threshold, _limit(case)
    values = _above(now, limit)
    found = [e for v in values if (e := case.effect({"staleness_threshold": v})) is not None]
    if not found:
        return f"staleness is at {now}, and {limit} is what is safe with this correction"
    effect = plateau(found)
    if not case.worth_it(effect):
        return f"plateau: from {now} to {values[-1]} the wait is not predicted to fall"
    chosen = effect.changes["staleness_threshold"]
    # `plateau` takes the last one only where the one before it still waits longer.
    where = (
        "the most that is safe with this correction; the wait is predicted to fall up to there"
        if effect is found[-1]
        else "where the predicted wait stops falling"
    )
    says = (
        f"The trainer waits {waits:.0%} of its time on the staleness quota: raise it from {now} to "
        f"{chosen}, {where}."
    )
    analytic = case.report.coverage.analytic
    evidence = [case.shown("trainer waits for samples", waits, owner="trainer",
                           causes=("wait_samples", "long_tail"))]  # fmt: skip
    if analytic is not None:
        what = f"of {analytic.sync_every} updates covered by the quota"
        evidence.append(case.shown(what, analytic.steps_covered, "count"))
    return case.propose(says, evidence, effect)


def _above(now: float, limit: float) -> list[float]:
    """Return the thresholds to try: steps of 0.1 below the limit, then the limit itself.

    Worked example: from 0.25 to at most 0.5: 0.35, 0.45 and 0.5. From 0.5 on: none.
    """
    if now >= limit:
        return []
    steps = (round(now + _STEP * i, 2) for i in range(1, math.ceil((limit - now) / _STEP) + 1))
    return [*(value for value in steps if value < limit), limit]


def plateau(effects: list[Effect]) -> Effect:
    """Return the first effect whose wait is within PLATEAU of the lowest.

    Worked example: waits of 30, 18, 17 and 17 % at 0.3, 0.5, 0.7, 0.9: the one at 0.5.
    """
    waits = [effect.after.trainer_wait_share.value or 0.0 for effect in effects]
    enough = min(waits) + PLATEAU
    return next(one for one, wait in zip(effects, waits, strict=True) if wait <= enough)


def _unstable(case: Case) -> str | None:
    """Return why rewards forbid more staleness, None where they do not."""
    quality = case.report.quality
    reward, volatility = quality.reward, quality.reward_volatility
    if reward is None:
        return None
    slope = reward.per_step
    if reward.significant and slope is not None and slope < 0:
        return f"the reward falls by {-slope:.2g} a step"
    if volatility is not None and volatility >= VOLATILE * abs(reward.mean):
        return f"the reward's volatility ({volatility:.2g}) is large beside its mean"
    return None


def staleness_coverage(case: Case) -> Proposal | str:
    """Staleness beyond the last update that it covers in full is given up where that gains.

    A staleness s with a sync every k updates covers floor(s k) of the k in full: 0.3 with k = 8
    is 2.4, so the first two, and 0.25 covers the same two.
    """
    analytic = case.report.coverage.analytic
    if analytic is None or case.mode() != "fully_async":
        return "only fully_async has a staleness threshold"
    if case.knobs is None:
        return NOT_CALIBRATED
    beyond = analytic.steps_ahead - analytic.steps_covered
    if beyond < BEYOND:
        return (
            f"a staleness of {analytic.staleness:g} covers {analytic.steps_covered} of "
            f"{analytic.sync_every} updates in full and hardly more"
        )
    if isinstance(raise_staleness(case), Proposal):
        return "raising the staleness is predicted to gain"
    lower = least_covering(analytic.steps_covered, analytic.sync_every)
    effect = case.effect({"staleness_threshold": lower})
    if effect is None or not case.worth_it(effect):
        return f"giving up the staleness beyond {lower:g} {case.no_gain(effect)}"
    says = (
        f"A staleness of {analytic.staleness:g} covers {analytic.steps_covered} of "
        f"{analytic.sync_every} updates in full, as {lower:g} does: samples get fresher, and "
        "throughput is predicted to rise."
    )
    shown = case.shown("updates covered in part only", beyond, "count")
    return case.propose(says, (shown,), effect)


def least_covering(covered: int, every: int) -> float:
    """Return about the least staleness, as a decimal, that covers so many of `every` updates.

    covered / every where that is a decimal of few digits, else rounded up: 1 of 3 is 0.334, as
    0.333 x 3 is less than 1. What rounding adds is less than 0.01 of an update.
    """
    digits = 3
    while every >= 10 ** (digits - 2):
        digits += 1
    return float(Fraction(-(-covered * 10**digits // every), 10**digits))


def sampling_collapse(case: Case) -> Proposal | str:
    """Sequence-level importance weights of long responses collapse onto a few samples."""
    size = case.report.quality.effective_sample_size
    if size is None or not size.collapsed:
        return "importance sampling has not collapsed, or is not used"
    if setting(case.config, "algorithm.rollout_correction.rollout_is") != "sequence":
        return "importance weights are not of whole sequences"
    says = (
        f"The effective sample size has fallen to {size.last:.2f}: weights of whole sequences "
        "leave few samples that count. Use weights of tokens."
    )
    override = "algorithm.rollout_correction.rollout_is=token"
    return Proposal(says, (case.shown("effective sample size", size.last),), {}, (override,))


def _limit(case: Case) -> float:
    bypass = setting(case.config, "algorithm.rollout_correction.bypass_mode")
    return SAFE if bypass else SAFE_DECOUPLED


RULES: Final = (
    Rule(
        name="raise_staleness", tier=4, variables="staleness", check=raise_staleness,
        costs_quality=True,
        asks="Does the staleness quota make the trainer wait?",
        fires=f"fully_async, the trainer waits at least {WAITS:.0%}, rollout_corr/kl is healthy, "
        f"the reward neither falls nor varies by {VOLATILE:.0%} of its mean, and at most {SAFE} "
        f"({SAFE_DECOUPLED} with decoupled PPO) is predicted to gain",
        risk="Off-policy data: watch rollout_corr/kl, reward volatility and validation accuracy.",
        verify="The wait falls as predicted; quality figures stay.",
        falsifier="The wait stays: generation is too slow, not held back.",
    ),
    Rule(
        name="staleness_coverage", tier=4, variables="staleness", check=staleness_coverage,
        asks="Does the staleness buy whole updates?",
        fires=f"fully_async, at least {BEYOND:g} of an update is covered in part only, and "
        "lowering the threshold to what is covered in full is predicted to gain",
        risk="Less slack for longer responses later in training.",
        verify="The mean lag falls; throughput rises as predicted.",
        falsifier="The trainer's wait rises: the part of an update was worth its staleness.",
    ),
    Rule(
        name="sampling_collapse", tier=4, variables="data", check=sampling_collapse,
        costs_quality=True,
        asks="Do importance weights leave few samples that count?",
        fires="the effective sample size has collapsed with weights of whole sequences",
        risk="Weights of tokens are biased.",
        verify="The effective sample size recovers; the reward does not fall.",
        falsifier="It stays low: the policies are too far apart for any weights.",
    ),
)  # fmt: skip
