"""The steady part of a run: warm-up cut by MSER-5, teardown cut.

MSER (White, 1997) truncates a series where the standard error of the mean of what remains
is smallest; MSER-5 does so on means of batches of five. A series that is too short for five
batches of five is used unbatched (MSER-1), and the cut never takes more than half of it,
as White recommends, since the statistic is unreliable in the tail.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_BATCH = 5


def mser_cut(values: Sequence[float]) -> int:
    """Return how many leading values are warm-up.

    For each truncation d the statistic is sum((x_i - mean)^2) / (n - d)^2 over the batch
    means that remain; the first smallest one is the cut.

    Worked example: [1, 5, 5, 5] has the statistics 12/16, 0, 0: one value is cut.
    """
    series = np.asarray(values, dtype=np.float64)
    batch = _BATCH if len(series) >= _BATCH * _BATCH else 1
    usable = len(series) // batch * batch
    means = series[:usable].reshape(-1, batch).mean(axis=1)
    candidates = len(means) // 2 + 1
    if len(means) < 2:
        return 0
    statistics = [_standard_error_squared(means[d:]) for d in range(min(candidates, len(means)))]
    return int(np.argmin(statistics)) * batch


def _standard_error_squared(values: np.ndarray) -> float:
    return float(((values - values.mean()) ** 2).sum() / len(values) ** 2)


#: Below so many windows an interval would be an invention.
MIN_WINDOWS = 4


def bootstrap_interval(
    numerators: Sequence[float], denominators: Sequence[float], *, draws: int = 2000
) -> tuple[float, float] | None:
    """Return the 95 % interval of sum(numerators) / sum(denominators) over windows.

    Moving-block bootstrap (Künsch, 1989): blocks of n^(1/3) consecutive windows are drawn
    with replacement, which keeps the correlation between neighbouring windows. None below
    `MIN_WINDOWS`.
    """
    top, bottom = np.asarray(numerators, float), np.asarray(denominators, float)
    count = len(top)
    if count < MIN_WINDOWS or bottom.sum() == 0:
        return None
    block = max(1, round(count ** (1 / 3)))
    starts = np.random.default_rng(0).integers(
        0, count - block + 1, size=(draws, -(-count // block))
    )
    picks = (starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :count]
    ratios = top[picks].sum(axis=1) / bottom[picks].sum(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)
