"""Figures of several simulated runs as estimates of one more."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.significance import student_margin


def figure(values: Sequence[float | None], wider: float) -> Estimate:
    """Return a figure, widened by `wider` of itself; unknown where any run does not know it."""
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return Estimate(None)
    return one_more_run(known, wider * abs(float(np.mean(known))))


def one_more_run(values: Sequence[float], wider: float) -> Estimate:
    """Return the mean, and the interval in which one more run would lie, widened by `wider`.

    A prediction interval (Student's t), not one of the mean: it is about a run, of which there
    will be one.
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean)
    spread = float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / len(values))
    margin = student_margin(len(values) - 1) * spread + wider
    return Estimate(mean, mean - margin, mean + margin)
