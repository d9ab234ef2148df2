"""What a validation takes beyond its simulated generation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.fits import Array, constrained, mean_error, together

_SEEDS = 3
_VALIDATIONS = 2
_LARGE = 50_000
#: Responses that are simulated at most: a run that validates rarely does so sooner here.
_MOST = 200_000
_SOONEST = 5


def with_validations(calibration: Calibration, recorded: Array) -> Calibration:
    """Return the calibration whose simulated validations take the recorded time on average.

    More replicas generate in a validation than elsewhere, which makes them slower where they
    share a host: what the simulation of the run itself is short of is added to each. Where it is
    not short but too long, nothing is added, and the residual of the fit says by how much.
    """
    every = calibration.knobs.validation_interval
    if not len(recorded) or not every or not calibration.costs.validation_requests:
        return calibration
    simulated = _simulated(calibration, every)
    fit = constrained(
        "costs.validation_rest_s", float(recorded.mean() - simulated.mean()),
        together(mean_error(recorded), mean_error(simulated)), len(recorded),
    )  # fmt: skip
    costs = replace(calibration.costs, validation_rest_s=fit.value)
    return replace(calibration, costs=costs, fits=(*calibration.fits, fit))


def _simulated(calibration: Calibration, every: int) -> Array:
    """Return the mean duration of a validation in each simulated run."""
    from rlinsight.analyzers.simulate.predict import simulate_run

    size = calibration.knobs.sync_step * calibration.knobs.update_prompts
    size *= calibration.knobs.group_size
    every = min(every, max(_SOONEST, _MOST // (_VALIDATIONS * size)))
    knobs = replace(calibration.knobs, validation_interval=every)
    versions = every * _VALIDATIONS
    seeds = _SEEDS if versions * size < _LARGE else 1  # a large run averages by itself
    certain = replace(calibration, fits=())
    runs = [simulate_run(certain, knobs, seed, versions) for seed in range(seeds)]
    return np.array([one.validation_s / one.validations for one in runs])
