"""Decoding speed from how long each response ran beside how many others.

A response that ran x_n seconds beside n others (itself counted) makes

    sum over n of x_n / (base + slope x n)

tokens in them, so that its own w tokens take w x (sum of x_n) / (that sum) seconds, and a stall in
which it makes none. Durations against mean concurrency would be simpler and wrong: in a batch that
starts together, long responses run alone at their end, so that length and concurrency hide each
other. Seconds are what is noisy (an end is noticed late), so it is them that are fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rlinsight.analyzers.simulate.fits import Array, Fit, finite, linear_errors

#: Concurrencies up to this are told apart one by one, higher ones in steps of a tenth.
_EXACT: Final = 64
_STEP: Final = 1.1
#: More responses than this say nothing new.
_ENOUGH: Final = 20_000
_NAMES: Final = ("base_s", "per_running_s", "end_s")
#: The solver stays this close to a bound at most.
_AT_ZERO: Final = 1e-6


@dataclass(frozen=True)
class Times:
    """Of each response: seconds beside how many (`beside[i, k]` beside `levels[k]`), and tokens."""

    levels: Array
    beside: Array
    tokens: Array

    @property
    def seconds(self) -> Array:
        """Return how long each response ran."""
        total: Array = self.beside.sum(axis=1)
        return total

    @property
    def mean_running(self) -> Array:
        """Return the time-weighted mean concurrency of each response."""
        mean: Array = self.beside @ self.levels / self.seconds
        return mean


def times_beside(lanes: list[tuple[Array, Array, Array]]) -> Times:
    """Return the times of responses on several replicas, given (starts, ends, tokens) of each.

    Worked example: a runs 0-4 s, b 2-4 s on one replica: a ran 2 s alone and 2 s beside b.
    """
    most = max(len(start) for start, _, _ in lanes)
    edges = _edges(most)
    parts = [_of_lane(start, end, edges) for start, end, _ in lanes]
    weights = np.sum([spent for _, spent in parts], axis=0)
    running = np.sum([levels * spent for levels, spent in
                      ((_mean_levels(start, end, edges), spent)
                       for (start, end, _), (_, spent) in zip(lanes, parts, strict=True))],
                     axis=0)  # fmt: skip
    seen = weights > 0
    beside = np.concatenate([beside for beside, _ in parts])[:, seen]
    tokens = np.concatenate([tokens for _, _, tokens in lanes])
    return Times(running[seen] / weights[seen], beside, tokens)


def fit_speed(times: Times) -> tuple[Fit, Fit, Fit]:
    """Return (base, slope, stall) that fit the seconds of all responses best, none negative.

    What each would be without that constraint is one Gauss-Newton step further.
    """
    from scipy.optimize import least_squares

    rng = np.random.default_rng(0)
    few = len(times.tokens) > _ENOUGH
    rows = rng.choice(len(times.tokens), _ENOUGH, replace=False) if few else slice(None)
    some = Times(times.levels, times.beside[rows], times.tokens[rows])
    typical = float(some.beside.sum() / some.tokens.sum())  # seconds a token
    scale = np.array([typical, typical / max(1.0, some.mean_running.max()), typical * 10])

    def residuals(scaled: Array) -> Array:
        apart: Array = fitted_seconds(some, *(scaled * scale)) - some.seconds
        return apart

    found = least_squares(residuals, (0.5, 0.5, 0.1), bounds=((1e-3, 0.0, 0.0), (10.0, 100.0, 1e4)))
    at_bound = found.active_mask != 0
    errors = linear_errors(found.jac, found.fun)
    step, *_ = np.linalg.lstsq(found.jac, -found.fun, rcond=None)
    value = np.where(at_bound & (found.x < _AT_ZERO), 0.0, found.x)
    value[0] = found.x[0]  # some speed there is
    free = np.where(at_bound & np.isfinite(errors), found.x + step, value)
    base, slope, stall = (
        Fit(f"decode.{name}", float(v), float(f), finite(float(e)), len(some.tokens))
        for name, v, f, e in zip(_NAMES, value * scale, free * scale, errors * scale, strict=True)
    )
    return base, slope, stall


def fitted_seconds(times: Times, base: float, slope: float, stall: float) -> Array:
    """Return how long each response runs at this speed, at the concurrencies that it had."""
    made = times.beside @ (1 / (base + slope * times.levels))
    seconds: Array = times.seconds / made * times.tokens + stall
    return seconds


def _edges(most: int) -> Array:
    """Return the lower edges of the concurrencies told apart."""
    edges = [float(n) for n in range(1, min(most, _EXACT) + 2)]
    while edges[-1] <= most:
        edges.append(np.ceil(edges[-1] * _STEP))
    return np.array(edges)


def _levels(start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Return when the concurrency changed, what it was from then on, and for how long."""
    changes = np.concatenate([start, end])
    order = np.argsort(changes, kind="stable")
    times = changes[order]
    running = np.cumsum(np.where(order < len(start), 1, -1)).astype(np.float64)
    return times, running, np.append(np.diff(times), 0.0)


def _of_lane(start: Array, end: Array, edges: Array) -> tuple[Array, Array]:
    """Return the seconds of each response in each bin, and the request-seconds of each bin."""
    times, running, lasted = _levels(start, end)
    bins = np.searchsorted(edges, running, side="right") - 1
    first = np.searchsorted(times, start, side="left")
    last = np.searchsorted(times, end, side="left")
    beside = np.zeros((len(start), len(edges)))
    for k in np.unique(bins[running > 0]):
        passed = np.concatenate([[0.0], np.cumsum(np.where(bins == k, lasted, 0.0))])
        beside[:, k] = passed[last] - passed[first]
    return beside, beside.sum(axis=0)


def _mean_levels(start: Array, end: Array, edges: Array) -> Array:
    """Return the mean concurrency within each bin, weighted by request-seconds."""
    _, running, lasted = _levels(start, end)
    bins = np.searchsorted(edges, running, side="right") - 1
    inside = running > 0
    weight = np.bincount(bins[inside], running[inside] * lasted[inside], minlength=len(edges))
    total = np.bincount(bins[inside], running[inside] ** 2 * lasted[inside], minlength=len(edges))
    mean = np.zeros(len(edges))
    np.divide(total, weight, out=mean, where=weight > 0)
    return mean
