"""Tier 3: how much an update trains on, and how many updates there are between two syncs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.advise.rules.sync import EVERY_VERSION_VALIDATED
from rlinsight.analyzers.simulate.pace import update_seconds

#: Share of an update from which on what it costs by itself, whatever its tokens, is worth sharing.
FIXED: Final = 0.25
#: Shares of time that both sides must stand still in turns.
WAITS: Final = 0.10
PAUSES: Final = 0.10
_PAUSED: Final = ("staleness_quota", "queue_full", "drain", "weight_sync_wait")


def mini_batch(case: Case) -> Proposal | str:
    """Twice the prompts per update, with half as many updates between syncs where there are any.

    Prompts per version, and with them the staleness quota, stay what they are.
    """
    if case.calibration is None or case.knobs is None:
        return NOT_CALIBRATED
    training = case.calibration.training
    if not training.tokens[1]:
        return "the tokens of updates are not known"
    fit = next((f for f in case.calibration.fits if f.name == "training.fixed_s"), None)
    if fit is not None and fit.verdict != "fits":
        return f"what an update costs by itself is {fit.verdict}"
    whole = update_seconds(case.calibration, case.knobs, sum(training.tokens) / 2)
    share = training.fixed_s * case.knobs.optimizer_steps / whole
    if share < FIXED:
        return f"{share:.0%} of an update is its own, the rest is its tokens"
    effect = case.best(_larger(case))
    if effect is None:
        return "larger mini-batches are predicted to gain nothing"
    says = (
        f"{share:.0%} of an update does not depend on its tokens: train on twice as many prompts "
        "at once, half as often."
    )
    shown = case.shown("constant part of an update", share)
    return case.propose(says, (shown,), effect)


def _larger(case: Case) -> list[Mapping[str, object]]:
    assert case.knobs is not None
    knobs, more = case.knobs, 2 * case.knobs.mini_batch
    if knobs.mode in ("sync", "colocate_async"):
        fits = more <= knobs.train_batch and knobs.train_batch % more == 0
        return [{"mini_batch": more}] if fits else []
    if knobs.sync_step % 2 == 0:
        return [{"mini_batch": more, "sync_step": knobs.sync_step // 2}]
    return []


def sync_step(case: Case) -> Proposal | str:
    """Twice the updates per sync, where trainer and rollouters stand still in turns."""
    if case.mode() not in ("separate_async", "fully_async"):
        return "this mode synchronizes after every step"
    if case.knobs is None:
        return NOT_CALIBRATED
    waits = case.bubble("trainer", "wait_samples", "long_tail", "weight_sync_wait")
    pauses = case.bubble("rollouter", *_PAUSED)
    if waits < WAITS or pauses < PAUSES:
        return f"the trainer waits {waits:.1%} and rollouts pause {pauses:.1%} of their time"
    fewer = case.half_the_syncs()
    if fewer is None:
        return EVERY_VERSION_VALIDATED
    effect = case.best([fewer])
    if effect is None:
        return "more updates per sync are predicted to gain nothing"
    says = (
        f"The trainer waits {waits:.0%} of its time and rollouts pause {pauses:.0%} of theirs: "
        "they take turns around each sync. Make twice as many updates between two syncs."
    )
    evidence = (
        case.shown("trainer waits", waits, owner="trainer", causes=("wait_samples", "long_tail")),
        case.shown("rollouts pause", pauses, owner="rollouter", causes=_PAUSED),
    )
    return case.propose(says, evidence, effect)


def fresher_samples(case: Case) -> Proposal | str:
    """Half as many updates per sync, where the policies drift apart and that gains."""
    if case.mode() not in ("separate_async", "fully_async"):
        return "this mode synchronizes after every step"
    kl = case.report.quality.kl
    if kl is None or kl.level == "healthy":
        return "rollout_corr/kl is healthy, or was not recorded"
    if case.knobs is None:
        return NOT_CALIBRATED
    if case.knobs.sync_step % 2:
        return f"{case.knobs.sync_step} updates per sync cannot be halved"
    effect = case.effect(case.twice_the_syncs())
    if effect is None or not case.worth_it(effect):
        return f"synchronizing twice as often {case.no_gain(effect)}"
    says = (
        f"rollout_corr/kl is {kl.times_healthy:.0f} times the healthy value, and synchronizing "
        "twice as often is predicted to gain: samples get fresher, too."
    )
    shown = case.shown("rollout_corr/kl, times the healthy 3e-4", kl.times_healthy, "x")
    return case.propose(says, (shown,), effect)


RULES: Final = (
    Rule(
        name="mini_batch", tier=3, variables="batching", check=mini_batch, costs_quality=True,
        asks="Do updates train on too little at once?",
        fires=f"at least {FIXED:.0%} of an update does not depend on its tokens (where the fit can "
        "tell), and twice the mini-batch is predicted to gain",
        risk="Half as many optimizer steps: the learning rate may have to follow.",
        verify="Training time per token falls; reward per sample does not.",
        falsifier="The update takes twice as long: the constant was none.",
    ),
    Rule(
        name="sync_step", tier=3, variables="sync", check=sync_step, costs_quality=True,
        asks="Do trainer and rollouts stand still in turns around each sync?",
        fires=f"the trainer waits at least {WAITS:.0%}, rollouts pause at least {PAUSES:.0%}, and "
        "twice as many updates per sync are predicted to gain",
        risk="Samples are older in updates; the same fraction of staleness spans more of them.",
        verify="Waits and pauses both fall; rollout_corr/kl stays.",
        falsifier="Only one of them falls: the sides are unbalanced, not in turns.",
    ),
    Rule(
        name="fresher_samples", tier=4, variables="sync", check=fresher_samples,
        asks="Would fresher samples gain?",
        fires="rollout_corr/kl is above healthy, and half as many updates per sync are predicted "
        "to gain",
        risk="More syncs: their time grows with the requests in flight.",
        verify="The mean lag in updates and rollout_corr/kl fall; throughput rises as predicted.",
        falsifier="rollout_corr/kl stays: see policy_mismatch.",
    ),
)  # fmt: skip
