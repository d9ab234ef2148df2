"""Tier 3: batches: balance over ranks, and batches ahead."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting

LOST: Final = 0.10
WAITS: Final = 0.10
#: Modes of verl's v1 trainers, which balance every batch and never read `trainer.balance_batch`.
BALANCED: Final = ("sync", "colocate_async", "separate_async")


def dp_imbalance(case: Case) -> Proposal | str:
    """Ranks that wait for the one with the most tokens.

    First balance, where verl asks for it (fully_async, and the legacy trainer of `sync`); the v1
    trainers always do. Then micro-batches by tokens.
    """
    ranks = case.report.balance.ranks
    lost = ranks.lost_share if ranks is not None else None
    if lost is None or lost < LOST:
        return "data-parallel ranks have equal work" if lost is not None else "one rank, or unknown"
    if not _balanced(case):
        override = "trainer.balance_batch=True"
    elif not setting(case.config, "actor_rollout_ref.actor.use_dynamic_bsz"):
        override = "actor_rollout_ref.actor.use_dynamic_bsz=True"
    else:
        return f"ranks lose {lost:.1%}, and batches are balanced and dynamic already"
    says = f"Ranks wait {lost:.0%} of the training time for the one with the most tokens."
    return Proposal(says, (case.shown("rank time lost", lost),), {}, (override,))


def _balanced(case: Case) -> bool:
    legacy = setting(case.config, "trainer.use_v1") is False
    if case.mode() in BALANCED and not legacy:
        return True
    return bool(setting(case.config, "trainer.balance_batch"))


def warm_up_batches(case: Case) -> Proposal | str:
    """One more batch ahead, where the trainer waits though it generates ahead."""
    if case.mode() not in ("colocate_async", "separate_async"):
        return "this mode has no warm-up batches"
    if case.knobs is None:
        return NOT_CALIBRATED
    waits = case.bubble("trainer", "wait_samples", "long_tail", "poll_interval")
    if waits < WAITS:
        return f"the trainer waits {waits:.1%} of its time"
    effect = case.best([{"warm_up_batches": case.knobs.warm_up_batches + 1}])
    if effect is None:
        return "one more batch ahead is predicted to gain nothing"
    says = f"The trainer waits {waits:.0%} of its time: one more batch ahead would hide the tails."
    shown = case.shown("trainer waits for samples", waits, owner="trainer",
                       causes=("wait_samples", "long_tail"))  # fmt: skip
    return case.propose(says, (shown,), effect)


RULES: Final = (
    Rule(
        name="dp_imbalance", tier=3, variables="batching", check=dp_imbalance,
        asks="Do ranks wait for the one with the longest sequences?",
        fires=f"at least {LOST:.0%} of the rank time is lost to unequal tokens, and batches are "
        "not balanced or not dynamic",
        risk="Balancing reorders a batch; with several mini-batches it changes which are together.",
        verify="`dp_imbalance` falls, and the update with it.",
        falsifier="The update stays as long: time does not follow tokens here.",
    ),
    Rule(
        name="warm_up_batches", tier=3, variables="batching", check=warm_up_batches,
        costs_quality=True,
        asks="Would one more batch ahead hide the trainer's waits?",
        fires=f"colocate_async or separate_async, the trainer waits at least {WAITS:.0%}, and one "
        "more batch is predicted to gain",
        risk="One more version of lag.",
        verify="The wait falls; the mean lag rises by about one version.",
        falsifier="The wait stays: generation is too slow on average, so a buffer only delays it.",
    ),
)  # fmt: skip
