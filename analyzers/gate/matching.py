"""Comparing runs at the same response length, and at the same share of validating windows.

Problem: responses that became longer make steps longer, and a window that holds a validation
is slower than one that does not; neither is a regression (verl-project/verl#1224). Method:
analysis of covariance. In every run the metric of a window is its run's mean plus slopes times
what the window was like, relative to the run's mean; the slopes are common to all runs, and
fitted within runs, so that a difference between runs cannot leak into them:

    value_w = mean_run + sum_k slope_k (condition_kw - mean condition_k,run)

weighted by the metric's denominator. The difference of two runs at equal conditions is the raw
one less slope x the difference of their conditions. What the conditions explain within a run
is no noise either: the residuals are what the spread is estimated from.

Worked example: baseline windows of lengths 100, 200, 300 take 10, 20, 30 s; the new run's of
200, 300, 400 take 20, 30, 40 s. The slope is 0.1 s per token; at equal length the runs differ
by 10 - 0.1 x 100 = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlinsight.analyzers.gate.metrics import Series

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Matched:
    """Runs brought to the same conditions: `amounts` are residual per run, the last is new.

    `means` are each run's means of the conditions `names`, `slopes` the change of the metric
    per unit of each, `covariance` the error of the slopes, on `freedom` degrees of freedom.
    """

    names: tuple[str, ...]
    amounts: tuple[Floats, ...]
    means: Floats
    slopes: Floats
    covariance: Floats
    freedom: float

    @property
    def offsets(self) -> Floats:
        """What each run's value owes to its conditions, relative to the mean of the others."""
        reference = self.means[:-1].mean(axis=0)
        found: Floats = (self.means - reference) @ self.slopes
        return found

    @property
    def variance(self) -> float:
        """The variance that unsure slopes add to the difference of the new run."""
        apart = self.means[-1] - self.means[:-1].mean(axis=0)
        return float(apart @ self.covariance @ apart)


def match(runs: Sequence[Series], wanted: Sequence[str]) -> Matched:
    """Return `runs` at equal conditions; those that cannot be fitted are left as they are.

    A condition is used where every window of every run knows it, it varies within runs, and
    there are at least two windows more than unknowns.
    """
    known = tuple(name for name in wanted if all(_known(run, name) for run in runs))
    columns, all_means = _centred(runs, known)
    kept = _usable(columns)
    names = tuple(known[i] for i in kept)
    centred, means = columns[:, kept], all_means[:, kept]
    weights = np.concatenate([run.per for run in runs])
    values = np.concatenate([run.amount / run.per - run.value for run in runs])
    unknowns = len(names) + len(runs)
    if not names or len(values) < unknowns + 2:
        return _unmatched(runs)
    scaled = centred * weights[:, None]
    normal = scaled.T @ centred
    slopes = np.linalg.solve(normal, scaled.T @ values)
    left = values - centred @ slopes
    freedom = len(values) - unknowns
    noise = float((weights * left**2).sum()) / freedom
    return Matched(
        names, _residual(runs, left), means, slopes, noise * np.linalg.inv(normal), freedom
    )


def _residual(runs: Sequence[Series], left: Floats) -> tuple[Floats, ...]:
    """Return each run's amounts without what the conditions explain."""
    parts = np.split(left, np.cumsum([len(run.per) for run in runs])[:-1])
    return tuple((run.value + part) * run.per for run, part in zip(runs, parts, strict=True))


def _unmatched(runs: Sequence[Series]) -> Matched:
    nothing = np.empty((len(runs), 0))
    return Matched(
        (), tuple(run.amount for run in runs), nothing, np.empty(0), np.empty((0, 0)), 0.0
    )


def _known(run: Series, name: str) -> bool:
    return name in run.conditions and bool(np.isfinite(run.conditions[name]).all())


def _usable(columns: Floats) -> list[int]:
    """Return the conditions that vary within runs and are no combination of those before."""
    kept: list[int] = []
    scales = np.sqrt((columns**2).sum(axis=0))
    for i in range(columns.shape[1]):
        tried = [*kept, i]
        if scales[i] > 0 and _independent(columns[:, tried] / scales[tried]):
            kept = tried
    return kept


def _independent(columns: Floats) -> bool:
    return columns.shape[1] == 1 or int(np.linalg.matrix_rank(columns, tol=1e-6)) == len(columns.T)


def _centred(runs: Sequence[Series], names: tuple[str, ...]) -> tuple[Floats, Floats]:
    """Return the conditions less their weighted mean in each run, and those means."""
    parts, means = [], []
    for run in runs:
        table = np.empty((len(run.per), len(names)))
        for i, name in enumerate(names):
            table[:, i] = run.conditions[name]
        mean = run.per @ table / run.per.sum()
        parts.append(table - mean)
        means.append(mean)
    return np.concatenate(parts), np.stack(means)
