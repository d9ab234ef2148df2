"""Trends of a figure over steps, and its volatility around the trend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rlinsight.analyzers.significance import kendall_two_sided

VOLATILITY_WINDOW = 10
#: Fewer steps have no trend.
MIN_STEPS = 5
_MOST = 1000


@dataclass(frozen=True)
class Trend:
    """A series over steps; `per_step` is the Theil-Sen slope, `significant` by Kendall's tau."""

    steps: int
    first: float
    last: float
    mean: float
    per_step: float | None
    significant: bool | None


def volatility(values: pl.DataFrame, window: int = VOLATILITY_WINDOW) -> float | None:
    """Return the mean rolling std (over `window` steps) of `value` less its trend.

    Needs at least `window` steps. Worked example: 0, 2, 2, 4, 4, 6, 6, 8, 8, 10 has the
    Theil-Sen slope 1 and residuals that alternate by 1: a volatility of 0.53.
    """
    curve = volatility_curve(values, window)
    return None if curve is None else float(curve["value"].to_numpy().mean())


def volatility_curve(values: pl.DataFrame, window: int = VOLATILITY_WINDOW) -> pl.DataFrame | None:
    """Return the rolling std (step, value) over the `window` steps that end at each step."""
    series = values["value"].to_numpy()
    if len(series) < max(window, MIN_STEPS):
        return None
    rest = series - theil_sen(series) * np.arange(len(series))
    windows = np.lib.stride_tricks.sliding_window_view(rest, window)
    return values[window - 1 :].select("step", value=pl.Series(windows.std(axis=1, ddof=1)))


def trend_of(values: pl.DataFrame) -> Trend | None:
    """Return the trend of (step, value) rows in order of step; None without rows."""
    series = values["value"].to_numpy()
    if not len(series):
        return None
    enough = len(series) >= MIN_STEPS
    return Trend(
        steps=len(series),
        first=float(series[0]),
        last=float(series[-1]),
        mean=float(series.mean()),
        per_step=theil_sen(series) if enough else None,
        significant=_is_trend(series) if enough else None,
    )


def theil_sen(series: np.ndarray) -> float:
    """Return the Theil-Sen slope per element: the median slope over all pairs.

    Of a long series every k-th element is taken, so that there are about a million pairs at
    most.
    """
    every = max(1, len(series) // _MOST)
    thinned = series[::every]
    earlier, later = np.triu_indices(len(thinned), 1)
    slopes = (thinned[later] - thinned[earlier]) / (later - earlier)
    return float(np.median(slopes)) / every


def _is_trend(series: np.ndarray) -> bool:
    return kendall_two_sided(series) < 0.05
