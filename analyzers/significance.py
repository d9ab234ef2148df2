"""Tail probabilities of the tests that analyzers use.

All from `scipy.special`, which loads in a tenth of the time of `scipy.stats`: a report is not
to wait for that. Agreement with `scipy.stats` is tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc, pdtrc, stdtr, stdtrit

#: Up to this many values without ties Kendall's test is exact.
_EXACT = 33


def student_two_sided(statistic: float, freedom: float) -> float:
    """Return the probability of a Student's t beyond +-`statistic`."""
    return float(2 * stdtr(freedom, -abs(statistic)))


def student_margin(freedom: float, confidence: float = 0.95) -> float:
    """Return the t within which +-t holds `confidence` of the distribution."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def f_upper(statistic: float, freedom: tuple[float, float]) -> float:
    """Return the probability of an F above `statistic`."""
    return float(fdtrc(*freedom, statistic))


def poisson_above(count: int, mean: float) -> float:
    """Return the probability of more than `count` events where `mean` are expected."""
    return 1.0 if count < 0 else float(pdtrc(count, mean))


def kendall_two_sided(values: Sequence[float] | npt.NDArray[np.float64]) -> float:
    """Return the p-value of Kendall's tau between `values` and their order (Mann-Kendall).

    Exact for up to 33 values without ties, and for a nearly perfect order, else normal with
    the variance corrected for ties. Equal values throughout show no trend: 1.

    Worked example: 1, 2, 3, 4 in order: 2 of the 24 orders are as extreme, 1/12.
    """
    ranks = np.unique(np.asarray(values), return_inverse=True)[1]
    ties = np.bincount(ranks)
    n, falling = len(ranks), _falling_pairs(ranks)
    pairs, tied = n * (n - 1) // 2, int((ties * (ties - 1) // 2).sum())
    if tied == pairs:
        return 1.0
    if tied == 0 and (n <= _EXACT or min(falling, pairs - falling) <= 1):
        return _exact(n, min(falling, pairs - falling))
    variance = n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())
    score = (pairs - tied - 2 * falling) / math.sqrt(variance / 18)
    return math.erfc(abs(score) / math.sqrt(2))


def _falling_pairs(ranks: npt.NDArray[np.int64]) -> int:
    """Count the pairs in which the later value is smaller, as merge sort does, level by level."""
    place, top, count, size = np.arange(len(ranks)), int(ranks.max(initial=0)) + 1, 0, 1
    while size < len(ranks):
        block, later = place // (2 * size), place // size % 2 == 1
        earlier = np.sort((block * top + ranks)[~later])
        own = block[later] * top
        ends = np.searchsorted(earlier, own + top)
        count += int((ends - np.searchsorted(earlier, own + ranks[later], side="right")).sum())
        size *= 2
    return count


def _exact(n: int, few: int) -> float:
    """Return the share of the orders of `n` values with at most `few` falling (or rising) pairs.

    The orders with k falling pairs are counted by inserting one value after the other (Kendall,
    Rank Correlation Methods, 1970).
    """
    if 4 * few >= n * (n - 1):
        return 1.0
    shares = np.zeros(few + 1)
    shares[0] = 1.0
    for size in range(2, n + 1):
        sums = np.cumsum(shares)
        sums[size:] -= sums[: max(0, few + 1 - size)].copy()
        shares = sums / size
    return min(1.0, float(2 * shares.sum()))
