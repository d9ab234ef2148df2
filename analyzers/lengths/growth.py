"""Whether steps become slower because responses become longer.

Problem: late steps several times as long as early ones are taken for a regression or for an
imbalance between ranks, when the policy has simply learned to write more
(verl-project/verl#1224: 25 s grew to 118.5 s with ranks balanced to 0.1 %).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.significance import student_margin, student_two_sided

Floats = npt.NDArray[np.float64]
GrowthVerdict = Literal[
    "steady", "length_growth", "dp_imbalance", "slower_per_token", "waiting", "unknown"
]

#: Late steps that are at most this much longer than early ones need no explanation.
_STEADY: Final = 1.10


@dataclass(frozen=True)
class Drift:
    """A straight line through the mean response length of each step, with its 95 % interval.

    `change_share` is the rise of the line over the run relative to its start. `p_value` is
    that of a slope of 0; steps resemble their neighbours, so it is worked out for as many
    independent steps as the residuals' lag-1 autocorrelation leaves (`effective_steps`).
    """

    steps: int
    effective_steps: float
    slope_tokens_per_step: float
    low: float | None
    high: float | None
    p_value: float | None
    change_share: float | None

    @property
    def significant(self) -> bool | None:
        """Whether a slope of 0 can be ruled out at 5 %; None with too few steps."""
        return None if self.p_value is None else self.p_value < 0.05


@dataclass(frozen=True)
class StepGrowth:
    """How the last third of the steps compares with the first, and which factor explains it.

    seconds_ratio = tokens_ratio x imbalance_ratio x pace_ratio x waiting_ratio: more tokens,
    one rank with more of them than the others, more seconds of work per token of the fullest
    rank, and a larger part of the step spent waiting for samples. The verdict names the largest.
    An imbalance, or a wait, that is not known is taken as unchanged.
    """

    verdict: GrowthVerdict
    seconds_ratio: float | None
    tokens_ratio: float | None
    imbalance_ratio: float | None
    pace_ratio: float | None
    waiting_ratio: float | None


def length_drift(steps: Sequence[float], mean_lengths: Sequence[float]) -> Drift | None:
    """Return the drift of `mean_lengths` (tokens) over `steps`; None with fewer than 2 steps.

    Worked example: 100, 110, 120, 130 at steps 1 to 4: slope 10 per step, p 0, change 0.3.
    """
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(mean_lengths, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0:
        return None
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    residuals = y - y.mean() - slope * centred
    effective = _effective(residuals)
    margin, p_value = _uncertainty(slope, residuals, centred, effective)
    first = y.mean() + slope * (x.min() - x.mean())
    return Drift(
        steps=len(x),
        effective_steps=effective,
        slope_tokens_per_step=slope,
        low=None if margin is None else slope - margin,
        high=None if margin is None else slope + margin,
        p_value=p_value,
        change_share=float(slope * np.ptp(x) / first) if first > 0 else None,
    )


def _effective(residuals: Floats) -> float:
    """Return n (1 - r) / (1 + r) for a positive lag-1 autocorrelation r, else n."""
    n, power = len(residuals), float(residuals @ residuals)
    if n < 4 or power <= 1e-18:
        return float(n)
    r = float(residuals[1:] @ residuals[:-1]) / power
    return n * (1 - r) / (1 + r) if r > 0 else float(n)


def _uncertainty(
    slope: float, residuals: Floats, centred: Floats, effective: float
) -> tuple[float | None, float | None]:
    n, freedom = len(residuals), effective - 2
    if freedom <= 0:
        return None, None
    variance = float(residuals @ residuals) / (n - 2) * n / effective
    error = math.sqrt(variance / float(centred @ centred))
    margin = student_margin(freedom) * error
    if error == 0:
        return margin, 0.0 if slope else 1.0
    return margin, student_two_sided(slope / error, freedom)


def step_growth(steps: pl.DataFrame) -> StepGrowth:
    """Return why late steps are longer than early ones.

    `steps` has, in order, seconds, the seconds of them without the wait for samples
    (work_seconds; may be left out), tokens (all ranks together) and dp_imbalance (max / mean of
    the ranks' tokens - 1) of each step, null where unknown. Medians of the thirds are compared.
    Worked example: 10 s for 1000 tokens became 40 s for 3600, balanced and without waiting:
    seconds 4 = tokens 3.6 x imbalance 1 x pace 1.11 x waiting 1, so length_growth.
    """
    third = len(steps) // 3
    if third == 0:
        return StepGrowth("unknown", None, None, None, None, None)
    early, late = steps.head(third), steps.tail(third)
    seconds, tokens = _ratio(early, late, "seconds"), _ratio(early, late, "tokens")
    uneven = _ratio(early, late, "dp_imbalance", plus=1.0)
    work = _ratio(early, late, "work_seconds")
    waiting = seconds / work if seconds and work else None
    pace = (work or seconds) / tokens / (uneven or 1.0) if seconds and tokens else None
    factors: dict[GrowthVerdict, float | None] = {
        "length_growth": tokens,
        "dp_imbalance": uneven or 1.0,
        "slower_per_token": pace,
        "waiting": waiting or 1.0,
    }
    return StepGrowth(_growth(seconds, factors), seconds, tokens, uneven, pace, waiting)


def _growth(seconds: float | None, factors: Mapping[GrowthVerdict, float | None]) -> GrowthVerdict:
    if seconds is None:
        return "unknown"
    if seconds <= _STEADY:
        return "steady"
    known = {name: factor for name, factor in factors.items() if factor is not None}
    return max(known, key=lambda name: known[name]) if len(known) == len(factors) else "unknown"


def _ratio(early: pl.DataFrame, late: pl.DataFrame, column: str, plus: float = 0.0) -> float | None:
    if column not in early.columns:
        return None
    first, last = early[column].median(), late[column].median()
    if not isinstance(first, (int, float)) or not isinstance(last, (int, float)):
        return None
    return (last + plus) / (first + plus) if first + plus > 0 else None
