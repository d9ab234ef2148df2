"""The speed of decoding where no request was recorded: the trainer waits as long with it.

Of a run's metrics only the trainer's wait for samples tells how fast replicas decode, and what it
tells depends on everything else: how many responses are in flight, when rollouts pause, what the
longest one holds up. So it is asked of the simulation itself: the speed is searched at which a
simulated run waits as long per version as was logged. The wait grows with the seconds of a token.

A wait of nothing only bounds the speed from below; the slowest one that is hardly waited for is
taken then.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt
from typing import Final

from rlinsight.analyzers.simulate.calibration import Calibration, Uncertainty
from rlinsight.errors import RlinsightError

#: Versions that are simulated and left out, and responses that are measured, about.
_WARM_UP: Final = 2
_RESPONSES: Final = 10_000
_FEWEST, _MOST = 3, 16
#: The speed is between the first guess divided and multiplied by this.
_RANGE: Final = 64.0
_TRIES: Final = 12
#: What is hardly a wait, as a share of the training of a version.
_HARDLY: Final = 0.01


def with_speed(calibration: Calibration, wait_s: float) -> Calibration:
    """Return the calibration at the speed with which the trainer waits `wait_s` per version.

    `calibration` has a first guess of it. Validations and checkpoints are left out, as they are of
    a typical version.
    """
    knobs = replace(calibration.knobs, validation_interval=None, checkpoint_interval=None)
    certain = replace(calibration, knobs=knobs, fits=(), uncertainty=Uncertainty())
    training = calibration.training.per_token_s * calibration.training.tokens[1] * knobs.sync_step
    target = wait_s if wait_s > 0 else _HARDLY * training
    low, high = (calibration.decode.base_s * factor for factor in (1 / _RANGE, _RANGE))
    for _ in range(_TRIES):
        middle = sqrt(low * high)
        if _waited(_at(certain, middle)) > target:
            high = middle
        else:
            low = middle
    return _at(calibration, sqrt(low * high))


def _at(calibration: Calibration, base_s: float) -> Calibration:
    return replace(calibration, decode=replace(calibration.decode, base_s=base_s))


def _waited(calibration: Calibration) -> float:
    """Return the simulated wait per version, in seconds; without end where it stands still."""
    from rlinsight.analyzers.simulate.predict import simulate_run

    knobs = calibration.knobs
    size = knobs.sync_step * knobs.update_prompts * knobs.group_size
    versions = max(_FEWEST, min(_MOST, _RESPONSES // size))
    try:
        marks = simulate_run(calibration, knobs, 0, _WARM_UP + versions).marks
    except RlinsightError:
        return inf
    return (marks[-1].states["wait"] - marks[_WARM_UP].states["wait"]) / versions
