"""A coarser calibration, from nothing but what the framework logged (`timing_s/*`, lengths).

Without requests, the speed of decoding at other concurrencies is unknown: one speed is taken
for all. Lengths are a log-normal through the logged mean and maximum, without correlation in
a group. Every prediction from it says so, and its intervals are wider.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np
import polars as pl

from rlinsight.analyzers.simulate.calibration import (
    POLL_S,
    Calibration,
    Costs,
    Decode,
    Training,
    Uncertainty,
)
from rlinsight.analyzers.simulate.coarse_speed import with_speed
from rlinsight.analyzers.simulate.fits import Fit
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.outside import demand
from rlinsight.errors import TraceError

#: Relative standard error that is assumed of what metrics only tell roughly.
ROUGH: Final = 0.15
_GROUPS: Final = 256
_TRAINING: Final = (
    "update_actor", "update_critic", "old_log_prob", "ref", "values", "adv", "reward",
)  # fmt: skip
#: Names of a weight sync: fully_async logs it with the prefix twice.
_SYNCS: Final = ("timing_s/timing_s/param_sync", "timing_s/param_sync", "timing_s/update_weights")
_COSTS: Final = (
    "sync_s", "checkpoint_s", "switch_to_rollout_s", "switch_to_trainer_s", "validation_before_s",
)  # fmt: skip
_UPDATED: Final = "timing_s/update_actor"
_NEEDED: Final = ("response_length/mean", _UPDATED, "timing_s/gen")
#: Of so few steps the first is counted, too.
_FEW: Final = 2


def calibrate_metrics(metrics: pl.DataFrame, knobs: Knobs, run_id: str | None) -> Calibration:
    """Return the coarse calibration. Raises TraceError where a needed key was not logged."""
    means = _means(metrics)
    missing = [key for key in _NEEDED if key not in means]
    if missing:
        raise TraceError(
            f"expected the metrics {', '.join(_NEEDED)} to calibrate a simulation, found no "
            f"`{missing[0]}`"
        )
    mean, longest = means["response_length/mean"], means.get("response_length/max")
    count = knobs.update_prompts * knobs.group_size
    sigma, short = _spread(mean, longest, count)
    lengths = _log_normal(mean, sigma, knobs)
    prompt = means.get("prompt_length/mean", 0.0)
    updates = knobs.sync_step  # verl sums timing_s over the updates of a step
    train_s = sum(means.get(f"timing_s/{name}", 0.0) for name in _TRAINING) / updates
    tokens = count * (mean + prompt)
    validation_s = _validation(means, knobs)
    costs = Costs(
        validation_before_s=validation_s or 0.0,
        validation_requests=1 if validation_s else 0,
        sync_s=next((means[key] for key in _SYNCS if key in means), 0.0),
        checkpoint_s=means.get("timing_s/save_checkpoint", 0.0),
        switch_to_rollout_s=means.get("timing_s/switch_to_rollout", 0.0),
        switch_to_trainer_s=means.get("timing_s/switch_to_trainer", 0.0),
    )
    guess = Calibration(
        knobs=knobs,
        lengths=lengths,
        validation_lengths=LengthModel(((1,),), knobs.max_response_length),
        prompt_tokens=prompt,
        decode=_guess(means, knobs, mean, train_s),
        training=Training(0.0, train_s / tokens, tokens=(tokens, tokens), updates=1),
        costs=costs,
        uncertainty=Uncertainty(ROUGH, ROUGH),
        fits=tuple(_rough(name, seconds) for name in _COSTS if (seconds := getattr(costs, name))),
        source="metrics",
        run_id=run_id,
        notes=(
            "calibrated from the framework's metrics only: one decoding speed for every "
            "concurrency, log-normal lengths without correlation within a group, training time "
            "proportional to tokens",
            *_unreached(short),
            *_unlogged(means),
        ),
    )
    return with_speed(guess, _wait(means))


def _validation(means: dict[str, float], knobs: Knobs) -> float | None:
    """Return the seconds of a validation, None where none was logged.

    Its requests are not known: it is simulated as that time and one token, whose end the trainers
    of v1 notice at a poll. What waking hybrid replicas takes for it is simulated beside it.
    """
    logged = means.get("timing_s/testing", means.get("rollouter/validate_time"))
    if logged is None or knobs.mode == "fully_async":
        return logged
    wakes = means.get("timing_s/switch_to_rollout", 0.0) if knobs.mode == "separate_async" else 0.0
    rest = logged - POLL_S - wakes
    return rest if rest > 0 else logged


def _rough(name: str, seconds: float) -> Fit:
    return Fit(f"costs.{name}", seconds, seconds, ROUGH * seconds, 1)


def _unlogged(means: dict[str, float]) -> tuple[str, ...]:
    """Name the costs that are taken to be none, since the metrics do not tell them."""
    logged = {
        "weight syncs": _SYNCS,
        "checkpoints": ("timing_s/save_checkpoint",),
    }
    return tuple(
        f"no time of {what} is logged: none is simulated"
        for what, keys in logged.items()
        if not any(key in means for key in keys)
    )


def _unreached(short: float) -> tuple[str, ...]:
    if not short:
        return ()
    return (
        f"the longest response is {math.exp(short):.2f} times as long as that of any log-normal "
        "with the logged mean: the spread that comes closest is used",
    )


def _means(metrics: pl.DataFrame) -> dict[str, float]:
    """Return the mean over steps of each metric, without the first update: it holds the start-up.

    Means, not medians: where a batch in two is generated ahead, half of the steps hardly wait.
    """
    trained = metrics.filter(pl.col("key").cast(pl.String) == _UPDATED)["step"].unique().sort()
    settled = pl.col("step") > (trained[0] if len(trained) > _FEW else -1)
    table = metrics.group_by(pl.col("key").cast(pl.String)).agg(
        pl.coalesce(pl.col("value").filter(settled).mean(), pl.col("value").mean())
    )
    return dict(table.iter_rows())


def _spread(mean: float, longest: float | None, count: int) -> tuple[float, float]:
    """Return the spread of logarithms for which the longest of `count` is about `longest`.

    log(longest / mean) = reach x sigma - sigma^2 / 2, the smaller root. That is at most
    reach^2 / 2, at sigma = reach; what the logged maximum has beyond it is the residual returned.
    """
    reach = NormalDist().inv_cdf(1 - 1 / (count + 1))
    ratio = math.log(longest / mean) if longest and longest > mean else 0.0
    most = reach**2 / 2
    if ratio > most:
        return reach, ratio - most
    return reach - math.sqrt(reach**2 - 2 * ratio), 0.0


def _log_normal(mean: float, sigma: float, knobs: Knobs) -> LengthModel:
    """Return log-normal lengths with this mean and spread, cut at the maximum."""
    rng = np.random.default_rng(0)
    drawn = rng.lognormal(math.log(mean) - sigma**2 / 2, sigma, (_GROUPS, knobs.group_size))
    cut = np.clip(drawn.round(), 1, knobs.max_response_length).astype(int)
    groups = tuple(tuple(sorted(group)) for group in cut.tolist())
    return LengthModel(groups, knobs.max_response_length)


def _guess(means: dict[str, float], knobs: Knobs, mean: float, train_s: float) -> Decode:
    """Return one speed for all concurrencies, as if replicas were busy all of the time.

    Slots are filled anew, so that what is trained in a cycle flows through those that are in use.

    Worked example: 8 responses of 100 tokens a replica in each cycle of 40 s, 4 of them at once:
    each takes 20 s, 0.2 s a token.
    """
    period = _wait(means) / knobs.sync_step + train_s
    replicas = knobs.standalone_replicas or knobs.hybrid_replicas
    share = knobs.update_prompts * knobs.group_size / replicas
    running = min(demand(knobs), float(knobs.max_num_seqs))
    return Decode(period * running / (share * mean), 0.0, 0.0, max_running=running)


def _wait(means: dict[str, float]) -> float:
    """Return the trainer's wait for samples in a version, in seconds."""
    return means["timing_s/gen"] + means.get("timing_s/switch_wait", 0.0)
