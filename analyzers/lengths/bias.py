"""Whether the trajectories that are trained are as long as those that were generated.

Problem: whatever discards trajectories by age or by time discards long ones first, and the
policy is trained on the short ones that are left (tinker-cookbook#822: discarding and
requeueing starved slow rollouts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from rlinsight.analyzers.significance import student_two_sided
from rlinsight.analyzers.staleness.lags import LOST_FATES


@dataclass(frozen=True)
class LengthBias:
    """Mean response tokens of trained samples beside all whose fate is settled.

    `bias_tokens` = trained mean - mean of all, negative when long ones get lost;
    `bias_share` is that per mean of all. `p_value` (Welch) is for trained and lost samples
    being equally long on average, None with fewer than two of either. `unknown_samples` are
    lost ones without a length, which may well be the longest.
    """

    trained_mean: float
    sampled_mean: float
    lost_mean: float | None
    bias_tokens: float
    bias_share: float | None
    p_value: float | None
    lost_samples: int
    unknown_samples: int


def length_bias(samples: pl.DataFrame) -> LengthBias | None:
    """Return the bias of `samples`; None where no trained sample has a length.

    Samples that are not consumed yet are left out: they may still be trained. Worked example:
    trained 100, 200, lost 300, 400: means 150 and 250, bias -100 tokens or -40 %.
    """
    settled = samples.filter(pl.col("fate").is_in(["trained", *LOST_FATES])).select(
        "response_tokens", trained=pl.col("fate") == "trained"
    )
    known = settled.filter(pl.col("response_tokens").is_not_null())
    trained = known.filter("trained")["response_tokens"].cast(pl.Float64)
    lost = known.filter(~pl.col("trained"))["response_tokens"].cast(pl.Float64)
    if trained.is_empty():
        return None
    mean, overall = _mean(trained), _mean(known["response_tokens"])
    return LengthBias(
        trained_mean=mean,
        sampled_mean=overall,
        lost_mean=_mean(lost) if len(lost) else None,
        bias_tokens=mean - overall,
        bias_share=(mean - overall) / overall if overall > 0 else None,
        p_value=_welch(trained, lost),
        lost_samples=len(lost),
        unknown_samples=len(settled.filter(~pl.col("trained"))) - len(lost),
    )


def _mean(values: pl.Series) -> float:
    return float(values.sum()) / len(values)


def _welch(first: pl.Series, second: pl.Series) -> float | None:
    if min(len(first), len(second)) < 2:
        return None
    errors = [float(series.to_numpy().var(ddof=1)) / len(series) for series in (first, second)]
    difference = _mean(first) - _mean(second)
    if sum(errors) == 0:
        return 0.0 if difference else 1.0
    parts = [e**2 / (len(s) - 1) for e, s in zip(errors, (first, second), strict=True)]
    freedom = sum(errors) ** 2 / sum(parts)
    return student_two_sided(difference / math.sqrt(sum(errors)), freedom)
