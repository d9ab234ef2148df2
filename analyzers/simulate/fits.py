"""How well each number of a calibration is known: its estimate without the constraint beside it.

A time cannot be negative, so a cost is the non-negative least-squares estimate of its
observations. Where noise puts the unconstrained estimate below zero, the two differ: that is the
residual, and it is reported, not swallowed. Every seed of a simulation draws each number as widely
as its error says (`draw.py`).

Worked example: a cost seen as -0.3, 0.1 and -0.1 s has a mean of -0.1 s with a standard error of
0.115 s. It is taken to be 0 s with a residual of 0.1 s: below the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: An estimate within so many standard errors of zero cannot be told from it.
_NOISE: Final = 2.0
#: Standard error of a median / that of a mean, of normal observations.
_MEDIAN: Final = math.sqrt(math.pi / 2)
#: Standard deviation / median absolute deviation, of normal observations.
_MAD: Final = 1.4826


@dataclass(frozen=True)
class Fit:
    """One fitted number, in seconds (slopes: per token or micro-batch), or a share.

    `value` is what a simulation uses, `free` the estimate without the constraint, `error` the
    standard error of `free`: None after a single observation, and where what the number multiplies
    was the same in all of them.
    """

    name: str
    value: float
    free: float
    error: float | None
    observations: int

    @property
    def residual(self) -> float:
        """Return what the constraint moved the estimate by."""
        return self.value - self.free

    @property
    def unbounded(self) -> bool:
        """Whether many observations say nothing about the number."""
        return self.error is None and self.observations > 1

    @property
    def verdict(self) -> str:
        """Return in words how well the number is known."""
        if self.unbounded:
            return "not identifiable: it never varied"
        if self.error is None:
            return "seen once: its noise is unknown" if self.observations else "not seen"
        if self.free < -_NOISE * self.error:
            return "not identifiable: the model explains more than there is"
        if self.free <= _NOISE * self.error:
            return "not identifiable: below noise"
        return "fits"


def constrained(name: str, free: float, error: float | None, observations: int) -> Fit:
    """Return the least-squares estimate that is not negative, of one with this minimum."""
    return Fit(name, free if free >= 0 else 0.0, free, error, observations)


def of_mean(name: str, seconds: Array) -> Fit:
    """Return the mean of some observations as a fit; 0 without any: the run had none of it."""
    if not len(seconds):
        return Fit(name, 0.0, 0.0, None, 0)
    return constrained(name, float(seconds.mean()), mean_error(seconds), len(seconds))


def of_median(name: str, seconds: Array) -> Fit:
    """Return the median of some observations as a fit; 0 without any: the run had none of it."""
    if not len(seconds):
        return Fit(name, 0.0, 0.0, None, 0)
    return constrained(name, float(np.median(seconds)), median_error(seconds), len(seconds))


def mean_error(seconds: Array) -> float | None:
    """Return the standard error of a mean, None after a single observation."""
    if len(seconds) < 2:
        return None
    return float(seconds.std(ddof=1)) / math.sqrt(len(seconds))


def median_error(seconds: Array) -> float | None:
    """Return the standard error of a median, from the median absolute deviation."""
    if len(seconds) < 2:
        return None
    spread = _MAD * float(np.median(np.abs(seconds - np.median(seconds))))
    return _MEDIAN * spread / math.sqrt(len(seconds))


def together(*errors: float | None) -> float | None:
    """Return the standard error of a sum or difference, None where all are unknown."""
    known = [error for error in errors if error is not None]
    return math.hypot(*known) if known else None


def finite(error: float) -> float | None:
    """Return an error of `linear_errors`, None for one without bound."""
    return error if math.isfinite(error) else None


def linear_errors(columns: Array, residuals: Array) -> Array:
    """Return the standard errors of the coefficients of a least-squares fit.

    Infinite where the columns do not tell the coefficients apart, or leave nothing to judge by.
    """
    count, size = columns.shape
    if count <= size or np.linalg.matrix_rank(columns) < size:
        return np.full(size, np.inf)
    variance = float(residuals @ residuals) / (count - size)
    errors: Array = np.sqrt(variance * np.diag(np.linalg.inv(columns.T @ columns)))
    return errors
