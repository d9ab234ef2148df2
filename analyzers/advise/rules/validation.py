"""Tier 2: validation and lent devices, which cost the same time again and again."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Evidence, Proposal, Rule

SHARE: Final = 0.05
MUCH: Final = 0.10
WAITS: Final = 0.10


def validation_share(case: Case) -> float:
    """Return the share of the trainer's time that validations take, its waits for them too."""
    return case.state("trainer", "validate") + case.bubble("trainer", "validation")


def trainer_validates(case: Case) -> Proposal | str:
    """The trainer's idle devices help with a validation that it waits for."""
    if case.mode() != "fully_async":
        return "only fully_async chooses who validates"
    if case.knobs is None:
        return NOT_CALIBRATED
    if case.knobs.trainer_validates:
        return "the trainer's devices validate already"
    share = validation_share(case)
    if share < SHARE:
        return f"validation takes {share:.1%} of the trainer's time"
    effect = case.best([{"trainer_validates": True}])
    if effect is None:
        return "no gain is predicted from the trainer's devices"
    says = (
        f"The trainer waits {share:.0%} of its time for validations on the rollout devices: let "
        "its own devices generate for them too."
    )
    return case.propose(says, (_shown(case, share),), effect)


def validation_interval(case: Case) -> Proposal | str:
    """Half as many validations."""
    if case.knobs is None:
        return NOT_CALIBRATED
    if case.knobs.validation_interval is None:
        return "the run does not validate"
    share = validation_share(case)
    if share < MUCH:
        return f"validation takes {share:.1%} of the trainer's time"
    every = case.knobs.validation_interval
    effect = case.best([{"validation_interval": 2 * every}])
    if effect is None:
        return "no gain is predicted from fewer validations"
    says = (
        f"Validations every {every} versions take {share:.0%} of the trainer's time: validate half "
        "as often."
    )
    return case.propose(says, (_shown(case, share),), effect)


def hybrid_switch(case: Case) -> Proposal | str:
    """The trainer's devices generate while it would wait."""
    if case.mode() != "separate_async":
        return "only separate_async lends its trainer's devices"
    if case.knobs is None:
        return NOT_CALIBRATED
    if case.knobs.hybrid_switch or not case.knobs.hybrid_engine:
        return "the switch is on already, or there are no hybrid replicas"
    waits = case.bubble("trainer", "wait_samples", "long_tail", "poll_interval")
    if waits < WAITS:
        return f"the trainer waits {waits:.1%} of its time"
    effect = case.best([{"hybrid_switch": True}])
    if effect is None:
        return "lending is predicted to gain nothing beyond its cost"
    says = f"The trainer waits {waits:.0%} of its time: its devices could generate meanwhile."
    shown = case.shown("trainer waits for samples", waits, owner="trainer",
                       causes=("wait_samples", "long_tail"))  # fmt: skip
    return case.propose(says, (shown,), effect)


def _shown(case: Case, share: float) -> Evidence:
    return case.shown("validation", share, owner="trainer", causes=("validation",))


RULES: Final = (
    Rule(
        name="trainer_validates", tier=2, variables="validation", check=trainer_validates,
        asks="Does the trainer stand by while others validate?",
        fires=f"fully_async, the rollouter validates, at least {SHARE:.0%} of the trainer's time "
        "goes to it, and the trainer's devices are predicted to shorten it",
        risk="Memory for a sleeping rollout engine on the trainer's devices.",
        verify="Validations get shorter; training steps do not get longer.",
        falsifier="The switch costs as much as it saves: short validations do not pay for it.",
    ),
    Rule(
        name="validation_interval", tier=2, variables="validation", check=validation_interval,
        asks="Is validated more often than it is worth?",
        fires=f"validation takes at least {MUCH:.0%} of the trainer's time",
        risk="A collapse of accuracy is noticed later.",
        verify="The share of validation halves.",
        falsifier="Throughput stays: generation caught up during validations.",
    ),
    Rule(
        name="hybrid_switch", tier=2, variables="resources", check=hybrid_switch,
        asks="Could waiting trainer devices generate?",
        fires=f"separate_async without the switch, the trainer waits at least {WAITS:.0%}, and "
        "lending is predicted to gain",
        risk="Requests are aborted at each switch; they continue on another replica.",
        verify="Waits fall, `switch_to_rollout` + `switch_to_trainer` stay small beside them.",
        falsifier="The policy never lends: nothing is missing at step ends.",
    ),
)  # fmt: skip
