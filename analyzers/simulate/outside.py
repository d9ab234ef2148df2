"""What a prediction leans on beyond what was measured, and how much wider that makes it.

Each leap has a relative allowance: how far the model may be off there. They are judgements, not
measurements, chosen so that leaning on an assumption shows; they add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.pace import micro_batches

#: Relative allowance per doubling away from what was measured.
_PER_DOUBLING: Final = {
    "trainer_devices": 0.08,
    "tensor_parallel": 0.15,
    "concurrency": 0.05,
    "concurrency_slope": 0.30,
    "update_tokens": 0.03,
    "token_budget": 0.03,
    "micro_batch_cost": 0.10,
    "ppo_epochs": 0.05,
}
_LONGER: Final = 0.10
_HYBRID: Final = 0.05
_METRICS: Final = 0.10
#: Costs that a run never had, and that a simulation leaves out.
_LEFT_OUT: Final = ("validation_interval", "checkpoint_interval")
#: How far beyond the seen range still counts as inside.
_SLACK: Final = 1.25


@dataclass(frozen=True)
class Leap:
    """One assumption: the knob or property, what is assumed, and its relative allowance."""

    about: str
    reason: str
    allowance: float


def leaps(calibration: Calibration, knobs: Knobs) -> tuple[Leap, ...]:
    """Return what a prediction of `knobs` assumes, nothing where it repeats the run."""
    return tuple(
        leap
        for leap in (
            _devices(calibration, knobs), _parallel(calibration, knobs),
            _epochs(calibration, knobs),
            _concurrency(calibration, knobs), _tokens(calibration, knobs),
            _budget(calibration, knobs), _lengths(calibration, knobs),
            _validation(calibration, knobs), _checkpoints(calibration, knobs),
            _source(calibration),
        )
        if leap is not None
    )  # fmt: skip


def leaps_of_change(calibration: Calibration, before: Knobs, after: Knobs) -> tuple[Leap, ...]:
    """Return what a comparison of two settings assumes.

    A cost that is left out of both, equally often, says nothing of their difference.
    """
    alike = {name for name in _LEFT_OUT if getattr(before, name) == getattr(after, name)}
    return tuple(leap for leap in leaps(calibration, after) if leap.about not in alike)


def widening(found: tuple[Leap, ...]) -> float:
    """Return the relative amount by which intervals grow to either side."""
    return sum(leap.allowance for leap in found)


def _doublings(name: str, new: float, old: float) -> float:
    return _PER_DOUBLING[name] * abs(math.log2(new / old))


def _devices(calibration: Calibration, knobs: Knobs) -> Leap | None:
    old, new = calibration.knobs.trainer_devices, knobs.trainer_devices
    if old == new:
        return None
    reason = f"training time per token is taken to fall in proportion from {old} to {new} devices"
    return Leap("trainer_devices", reason, _doublings("trainer_devices", new, old))


def _parallel(calibration: Calibration, knobs: Knobs) -> Leap | None:
    old, new = calibration.knobs.tensor_parallel, knobs.tensor_parallel
    if old == new:
        return None
    reason = f"the speed of decoding was measured with tensor parallelism {old}, not {new}"
    return Leap("tensor_parallel", reason, _doublings("tensor_parallel", new, old))


def _epochs(calibration: Calibration, knobs: Knobs) -> Leap | None:
    old, new = calibration.knobs.ppo_epochs, knobs.ppo_epochs
    if old == new:
        return None
    reason = f"all of the training time is taken to be repeated in each of {new} epochs, not {old}"
    return Leap("ppo_epochs", reason, _doublings("ppo_epochs", new, old))


def _concurrency(calibration: Calibration, knobs: Knobs) -> Leap | None:
    seen = max(1.0, calibration.decode.max_running)
    asked = min(float(knobs.max_num_seqs), demand(knobs))
    if asked <= seen * _SLACK:
        return None
    reason = (
        f"up to {asked:.0f} responses run on a replica, and speeds were measured up to {seen:.0f}"
    )
    slopes = [fit for fit in calibration.fits if fit.name == "decode.per_running_s"]
    if any(fit.verdict != "fits" for fit in slopes):
        unknown = f"{reason}, where it could not be told how decoding slows with them"
        return Leap("concurrency_slope", unknown, _doublings("concurrency_slope", asked, seen))
    return Leap("concurrency", reason, _doublings("concurrency", asked, seen))


def demand(knobs: Knobs) -> float:
    """Return the most responses that can be in flight per replica."""
    if knobs.mode == "fully_async":
        replicas = knobs.standalone_replicas
        prompts = min(replicas * knobs.concurrent_samples, knobs.max_required_samples)
    else:
        replicas = knobs.standalone_replicas or knobs.hybrid_replicas
        ahead = 0.0 if knobs.mode == "sync" else knobs.warm_up_batches
        prompts = math.ceil((1 + ahead) * knobs.train_batch)
    return prompts * knobs.group_size / replicas


def _tokens(calibration: Calibration, knobs: Knobs) -> Leap | None:
    per_response = calibration.lengths.mean * knobs.length_scale + calibration.prompt_tokens
    asked = per_response * knobs.group_size * knobs.update_prompts
    low, high = calibration.training.tokens
    if not high or low / _SLACK <= asked <= high * _SLACK:
        return None
    reason = (
        f"an update trains on about {asked:.0f} tokens, and times were measured from "
        f"{low:.0f} to {high:.0f}"
    )
    return Leap(
        "update_tokens", reason, _doublings("update_tokens", asked, high if asked > high else low)
    )


def _budget(calibration: Calibration, knobs: Knobs) -> Leap | None:
    old, new = calibration.knobs.token_budget, knobs.token_budget
    if old == new:
        return None
    tokens = calibration.training.tokens[1]
    if old and new and micro_batches(knobs, tokens) == micro_batches(calibration.knobs, tokens):
        return None
    apart = any(
        fit.name == "training.per_micro_batch_s" and fit.verdict == "fits"
        for fit in calibration.fits
    )
    about, reason = (
        ("token_budget", "micro-batches of another size are as fast per token as those measured")
        if apart
        else (
            "micro_batch_cost",
            "what a micro-batch costs by itself was not measured apart from the rest of an update",
        )
    )
    return Leap(about, reason, _doublings(about, new, old) if old and new else _PER_DOUBLING[about])


def _lengths(calibration: Calibration, knobs: Knobs) -> Leap | None:
    if knobs.max_response_length <= calibration.lengths.cap or not calibration.lengths.capped_share:
        return None
    reason = (
        f"{calibration.lengths.capped_share:.1%} of the responses were cut at "
        f"{calibration.lengths.cap} tokens, and their further length is extrapolated"
    )
    return Leap("max_response_length", reason, _LONGER)


def _validation(calibration: Calibration, knobs: Knobs) -> Leap | None:
    if knobs.validation_interval and not calibration.costs.validation_requests:
        reason = "the run never validated, so what a validation costs is unknown and left out"
        return Leap("validation_interval", reason, _LONGER)
    if _lends_unseen(calibration, knobs):
        return Leap("hybrid_replicas", "lending hybrid replicas was not measured", _HYBRID)
    return None


def _checkpoints(calibration: Calibration, knobs: Knobs) -> Leap | None:
    if not knobs.checkpoint_interval or calibration.saw("checkpoint_s"):
        return None
    reason = "the run never saved a checkpoint, so what one costs is unknown and left out"
    return Leap("checkpoint_interval", reason, _LONGER)


def _lends_unseen(calibration: Calibration, knobs: Knobs) -> bool:
    """Whether hybrid replicas are lent, which the run never did: it had none, or no reason."""
    if not knobs.hybrid_replicas or knobs.mode not in ("separate_async", "fully_async"):
        return False
    if not calibration.knobs.hybrid_replicas:
        return True
    if knobs.mode == "fully_async":
        return knobs.validation_interval is not None and not calibration.saw("lend_before_s")
    lends = knobs.validation_interval is not None or knobs.hybrid_switch
    return lends and not calibration.saw("switch_to_rollout_s")


def _source(calibration: Calibration) -> Leap | None:
    if calibration.source == "trace":
        return None
    reason = "calibrated from the framework's metrics, without requests or intervals"
    return Leap("calibration", reason, _METRICS)
