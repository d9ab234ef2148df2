"""Least squares with coefficients that cannot be negative: a time is never saved by more work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def non_negative(columns: Sequence[Array], values: Array) -> Array:
    """Return the coefficients c >= 0 of `columns` that fit `values` best.

    Columns are scaled first, so that tokens and seconds weigh alike numerically. A column of
    zeros gets 0.

    Worked example: columns (1, 1) and (1, 2), values (3, 5): 1 and 2.
    """
    from scipy.optimize import nnls

    matrix = np.column_stack(columns).astype(np.float64)
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    found, _ = nnls(matrix / scale, np.asarray(values, dtype=np.float64))
    coefficients: Array = found / scale
    return coefficients


def explained(values: Array, fitted: Array) -> float | None:
    """Return the share of the variance of `values` that `fitted` explains, None without any."""
    spread = float(((values - values.mean()) ** 2).sum())
    if len(values) < 3 or spread == 0:
        return None
    return 1 - float(((values - fitted) ** 2).sum()) / spread


def standard_error(ratios: Array) -> float:
    """Return the relative standard error of a mean that `ratios` (measured / fitted) scatter about.

    Worked example: 0.9 and 1.1 have a standard deviation of 0.141, and their mean one of 0.1.
    """
    if len(ratios) < 2:
        return 0.0
    return float(ratios.std(ddof=1) / np.sqrt(len(ratios)))
