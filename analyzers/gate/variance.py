"""How far a metric of one run can be off: the moving-block bootstrap, in closed form.

Problem: neighbouring windows resemble each other, so the textbook error of a mean is too small,
and a bootstrap of a dozen windows by drawing is noisy and, at so few blocks, too narrow.

The variance that a moving-block bootstrap (Künsch, 1989) converges to with infinitely many draws
is that of its block sums. With the overlapping-batch-means correction for few blocks
(Meketon and Schmeiser, 1984), for residuals e_i of a mean over n windows in blocks of b:

    variance = b / ((n - b + 1) (n - b)) x sum_j (mean of block j)^2

on 1.5 (n / b - 1) degrees of freedom (n - 1 where b = 1). Blocks are round(n^(1/3)) windows
long, as in the intervals of `rlinsight analyze`. A ratio sum(a) / sum(d) has the residuals
(a_i - ratio x d_i) / mean(d).

Worked example: a = 1, 2, 3, 4 per window, b = 2: residuals -1.5, -0.5, 0.5, 1.5, block means
-1, 0, 1; variance 2 / (3 x 2) x (1 + 0 + 1) = 0.667 on 1.5 degrees of freedom. Independent
windows would have given 0.417: the trend counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """A variance (unit of the metric, squared) and the degrees of freedom it was estimated on."""

    variance: float
    freedom: float


def block_length(count: int) -> int:
    """Return the windows per block for `count` windows."""
    return max(1, round(math.pow(count, 1 / 3)))


def block_variance(residuals: Floats) -> Spread:
    """Return the variance of the mean of a series whose deviations from it are `residuals`.

    One window says nothing about its spread: the variance is 0 on 0 degrees of freedom.
    """
    count = len(residuals)
    block = block_length(count)
    if count < 2:
        return Spread(0.0, 0.0)
    sums = np.append(0.0, np.cumsum(residuals))
    means = (sums[block:] - sums[:-block]) / block
    scale = block / ((count - block + 1) * (count - block))
    freedom = count - 1 if block == 1 else 1.5 * (count / block - 1)
    return Spread(scale * float((means**2).sum()), freedom)


def ratio_variance(amount: Floats, per: Floats) -> Spread:
    """Return the variance of sum(amount) / sum(per) over windows."""
    ratio = amount.sum() / per.sum()
    return block_variance((amount - ratio * per) / per.mean())


def total(parts: list[tuple[float, Spread]]) -> Spread:
    """Return the variance of a sum of independent parts, each with the square of its weight.

    Degrees of freedom by Welch and Satterthwaite; a part on none is taken as known.
    """
    variance = sum(weight * spread.variance for weight, spread in parts)
    doubt = sum(
        (weight * spread.variance) ** 2 / spread.freedom
        for weight, spread in parts
        if spread.freedom
    )
    return Spread(variance, variance**2 / doubt if doubt > 0 else float("inf"))
