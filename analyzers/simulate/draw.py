"""What a seed takes a calibration's numbers to be, within what is known of them.

Each fitted number is drawn from a normal distribution about its estimate without the constraint, as
wide as its standard error, cut to what is possible (0 and above): what the recording speaks against
does not become likely by the cut. A cost that cannot be told from nothing is so drawn as small as
its noise can hide it, and predictions that depend on it widen by that. A slope (decoding against
concurrency, training against tokens) turns about the mean of what was measured: there the time is
known, however uncertain the slope.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from rlinsight.analyzers.simulate.calibration import Calibration, Decode, Training
from rlinsight.analyzers.simulate.fits import Fit

#: Draws outside of what is possible are repeated so often at most; the estimate stands after.
_TRIES: Final = 100


def drawn(calibration: Calibration, rng: np.random.Generator) -> Calibration:
    """Return the calibration with its fitted numbers drawn; itself without any fits."""
    fits = {fit.name: fit for fit in calibration.fits}
    if not fits:
        return calibration
    costs: dict[str, Any] = {
        name.removeprefix("costs."): _draw(rng, fit, fit.value, math.inf)
        for name, fit in fits.items()
        if name.startswith("costs.")
    }
    return replace(
        calibration,
        costs=replace(calibration.costs, **costs),
        decode=_decode(calibration.decode, fits, rng),
        training=_training(calibration, fits, rng),
    )


def _decode(decode: Decode, fits: dict[str, Fit], rng: np.random.Generator) -> Decode:
    ends: dict[str, Any] = {
        name: _draw(rng, fits[f"decode.{name}"], getattr(decode, name), math.inf)
        for name in ("start_s", "arrival_s", "end_s")
        if f"decode.{name}" in fits
    }
    fit, pivot = fits.get("decode.per_running_s"), decode.mean_running
    if fit is None or not pivot:
        return replace(decode, **ends)
    whole = decode.base_s + decode.per_running_s * pivot
    slope = _draw(rng, fit, decode.per_running_s, whole / pivot)
    return replace(decode, **ends, per_running_s=slope, base_s=whole - slope * pivot)


def _training(calibration: Calibration, fits: dict[str, Fit], rng: np.random.Generator) -> Training:
    training, fit = calibration.training, fits.get("training.per_token_s")
    low, high = training.tokens
    pivot = (low + high) / 2
    steps = calibration.knobs.optimizer_steps
    if fit is None or not pivot:
        return training
    whole = training.fixed_s * steps + training.per_token_s * pivot
    slope = _draw(rng, fit, training.per_token_s, whole / pivot)
    return replace(training, per_token_s=slope, fixed_s=(whole - slope * pivot) / steps)


def _draw(rng: np.random.Generator, fit: Fit, value: float, highest: float) -> float:
    """Draw about the free estimate within [0, highest]; anything there where nothing is known."""
    if fit.unbounded:
        return float(rng.uniform(0.0, highest)) if math.isfinite(highest) else value
    if fit.error:
        for _ in range(_TRIES):
            tried = float(rng.normal(fit.free, fit.error))
            if 0 <= tried <= highest:
                return tried
    return value
