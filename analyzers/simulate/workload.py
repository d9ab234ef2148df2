"""What there is to do, drawn from the recorded run: responses, validations, updates."""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.lengths import Array, LengthModel
from rlinsight.analyzers.simulate.pace import update_seconds

#: Prompts to draw at a time, of so many responses at most.
_CHUNK: Final = 2048
_DRAWN: Final = 1 << 22

Stream = Literal["lengths", "updates", "validation", "costs", "luck"]


def random_stream(seed: int, name: Stream) -> np.random.Generator:
    """Return the random numbers of one kind of draw.

    Each kind has its own, so that a knob that changes one leaves the others as they were.
    """
    return np.random.default_rng([seed, get_args(Stream).index(name)])


class Workload:
    """The work of one simulated run. `pace` is how much longer this run's updates take."""

    def __init__(self, calibration: Calibration, knobs: Knobs, seed: int, *, pace: float) -> None:
        self._calibration = calibration
        self._knobs = knobs
        self._pace = pace
        self._lengths = random_stream(seed, "lengths")
        self._updates = random_stream(seed, "updates")
        self._validation = random_stream(seed, "validation")
        self._drawn: list[list[float]] = []

    def responses(self) -> list[float]:
        """Return the lengths of the next prompt's responses, in tokens."""
        if not self._drawn:
            size = self._knobs.group_size
            prompts = max(1, min(_CHUNK, _DRAWN // size))
            drawn = self._draw(self._calibration.lengths, self._lengths, prompts, size)
            self._drawn = drawn[::-1].tolist()
        return self._drawn.pop()

    def validates(self, version: int) -> bool:
        """Whether a validation follows a version; one of unknown work is left out."""
        every = self._knobs.validation_interval
        if not every or not self._calibration.costs.validation_requests:
            return False
        return version % every == 0

    def validation(self) -> list[float]:
        """Return the lengths of the responses of a validation set, in tokens."""
        calibrated = self._calibration
        again = self._knobs.validation_samples / calibrated.knobs.validation_samples
        requests = max(1, round(calibrated.costs.validation_requests * again))
        drawn = self._draw(calibrated.validation_lengths, self._validation, requests, 1)
        lengths: list[float] = drawn[:, 0].tolist()
        return lengths

    def update_seconds(self, tokens: float) -> float:
        """Return how long one update on so many tokens takes, in seconds."""
        spread = self._calibration.training.residuals
        factor = float(self._updates.choice(spread)) if spread else 1.0
        return update_seconds(self._calibration, self._knobs, tokens) * factor * self._pace

    def _draw(
        self, lengths: LengthModel, stream: np.random.Generator, prompts: int, size: int
    ) -> Array:
        return lengths.draw(
            stream, prompts, size, maximum=self._knobs.max_response_length,
            scale=self._knobs.length_scale, tail=self._knobs.length_tail,
        )  # fmt: skip
