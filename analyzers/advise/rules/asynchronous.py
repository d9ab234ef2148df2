"""Tier 1: generate ahead instead of taking turns, and when not to."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.simulate.predict import predict_setting
from rlinsight.errors import RlinsightError

#: Below this, waiting is not what costs: a change of mode is not worth its trouble.
WAITS: Final = 0.10


def go_asynchronous(case: Case) -> Proposal | str:
    """The same devices, in colocate_async with one batch ahead."""
    if case.mode() != "sync":
        return "the run is asynchronous already"
    if case.calibration is None or case.knobs is None:
        return NOT_CALIBRATED
    idle = case.bubble("trainer", "wait_samples", "long_tail", "poll_interval")
    if idle < WAITS:
        return f"stay synchronous: only {idle:.1%} of the device time waits for samples"
    after = replace(case.knobs, mode="colocate_async", warm_up_batches=1.0)
    changes: dict[str, object] = {"mode": "colocate_async", "warm_up_batches": 1}
    try:
        effect = predict_setting(case.calibration, after, changes, seeds=case.seeds)
    except RlinsightError as error:
        return f"cannot be predicted: {error}"
    if not case.worth_it(effect):
        gain = case.gain(effect) or 0.0
        return f"stay synchronous: generating one batch ahead is predicted to change {gain:+.1%}"
    says = (
        f"Training and generation take turns and {idle:.0%} of the device time waits for the last "
        "samples: generate one batch ahead on the same devices."
    )
    evidence = (
        case.shown("waits for samples, nothing generating", idle, owner="trainer",
                   causes=("wait_samples", "long_tail", "poll_interval")),
    )  # fmt: skip
    overrides = (
        "trainer.v1.trainer_mode=colocate_async",
        "trainer.v1.colocate_async.num_warmup_batches=1",
    )
    return Proposal(says, evidence, changes, overrides, effect)


RULES: Final = (
    Rule(
        name="go_asynchronous", tier=1, variables="resources", check=go_asynchronous,
        costs_quality=True,
        asks="Would generating ahead hide the waits of a synchronous run?",
        fires=f"mode sync, at least {WAITS:.0%} of the device time waits for samples, and "
        "colocate_async with one batch ahead is predicted to gain",
        risk="Samples are one version old: watch rollout_corr/kl and the reward.",
        verify="The wait for samples falls; the mean lag is about one version.",
        falsifier="The wait stays: generation itself takes as long as before, so it was no bubble.",
    ),
)  # fmt: skip
