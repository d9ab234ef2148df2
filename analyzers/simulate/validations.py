"""What a validation takes beyond its simulated generation."""

from __future__ import annotations

from dataclasses import replace

from rlinsight.analyzers.simulate.calibration import Calibration

_SEEDS = 3
_VALIDATIONS = 2
_LARGE = 50_000


def with_validations(calibration: Calibration, recorded_s: float | None) -> Calibration:
    """Return the calibration whose simulated validations take the recorded time on average.

    More replicas generate in a validation than elsewhere, which makes them slower where they
    share a host: what the simulation of the run itself is short of is added to each.
    """
    every = calibration.knobs.validation_interval
    if not recorded_s or not every or not calibration.costs.validation_requests:
        return calibration
    simulated_s = _simulated(calibration, every * _VALIDATIONS)
    costs = replace(calibration.costs, validation_rest_s=max(0.0, recorded_s - simulated_s))
    return replace(calibration, costs=costs)


def _simulated(calibration: Calibration, versions: int) -> float:
    from rlinsight.analyzers.simulate.predict import simulate_run

    knobs = calibration.knobs
    responses = versions * knobs.sync_step * knobs.update_prompts * knobs.group_size
    seeds = _SEEDS if responses < _LARGE else 1  # a large run averages by itself
    spent, count = 0.0, 0
    for seed in range(seeds):
        account = simulate_run(calibration, calibration.knobs, seed, versions)
        spent += account.validation_s
        count += account.validations
    return spent / count
