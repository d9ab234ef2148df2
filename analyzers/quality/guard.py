"""Quality guard: does speed cost learning? Rewards, accuracy, off-policy figures, groups.

| figure | formula and source |
|---|---|
| reward volatility | rolling std (10 steps) of the per-step mean reward less its Theil-Sen line |
| reward trend | slope of that line per step; Kendall's tau tells whether it is more than noise |
| accuracy | validation metrics (`val-core/…`): first, last, best |
| KL | median of `rollout_corr/kl`; a healthy asynchronous run is near 3e-4 |
| clip fractions | means of `actor/pg_clipfrac`, `actor/pg_clipfrac_lower` |
| effective sample size | `rollout_corr/rollout_is_eff_sample_size`, 1 = all tokens count alike |
| zero-variance groups | groups of two or more trajectories with equal rewards: no gradient |
| partial ratio | trained trajectories that span parameter versions |
| invalid ratio | trajectories that were aborted, of those whose fate is known |

Whatever was not recorded is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from rlinsight.analyzers.quality.trends import MIN_STEPS, Trend, trend_of, volatility
from rlinsight.analyzers.staleness.lags import LOST_FATES

HEALTHY_KL = 3e-4
#: Above ten times the healthy value the policies differ; above a thousand times, they are not
#: the same model (a wrong vocabulary size gave 0.3 to 0.5).
RAISED_KL, BROKEN_KL = 10 * HEALTHY_KL, 1000 * HEALTHY_KL
#: An effective sample size below this has collapsed.
COLLAPSED_ESS = 0.3

KlLevel = Literal["healthy", "raised", "broken"]


@dataclass(frozen=True)
class Accuracy:
    """One validation metric over the run; `below_best` = best - last."""

    key: str
    first: float
    last: float
    best: float
    best_step: int | None
    below_best: float
    points: int


@dataclass(frozen=True)
class Kl:
    """Mismatch of rollout and training policy; `times_healthy` is |median| / 3e-4."""

    median: float
    largest: float
    times_healthy: float
    level: KlLevel


@dataclass(frozen=True)
class EffectiveSampleSize:
    """`length_correlation` is Spearman's with the mean response length (negative: it falls
    where responses are long, as sequence-level importance weights make it).
    """

    mean: float
    last: float
    lowest: float
    collapsed: bool
    length_correlation: float | None


@dataclass(frozen=True)
class Quality:
    """The guard's figures; `reward_source` says what the rewards were read from."""

    reward: Trend | None
    reward_volatility: float | None
    reward_source: str | None
    accuracy: tuple[Accuracy, ...]
    kl: Kl | None
    clip_fraction: float | None
    clip_fraction_lower: float | None
    truncated_share_framework: float | None
    effective_sample_size: EffectiveSampleSize | None
    groups: int | None
    zero_variance_share: float | None
    partial_ratio: float | None
    invalid_ratio: float | None
    framework_partial_ratio: float | None
    framework_aborted_ratio: float | None


def quality(
    samples: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    settled: pl.DataFrame | None = None,
    validations: pl.DataFrame | None = None,
) -> Quality:
    """Return the guard's figures of the given rows (restrict them to a window beforehand).

    `settled` are the samples of any fate that the invalid ratio is of (else `samples`),
    `validations` the metrics that accuracy is read from (else `metrics`): a validation before
    the first step or after the last is outside of every steady window.
    """
    rewards, source = reward_curve(samples, metrics)
    groups, flat = zero_variance_groups(samples)
    return Quality(
        reward=trend_of(rewards),
        reward_volatility=volatility(rewards),
        reward_source=source,
        accuracy=accuracy(metrics if validations is None else validations),
        kl=_kl(metrics),
        clip_fraction=_mean(metrics, "actor/pg_clipfrac"),
        clip_fraction_lower=_mean(metrics, "actor/pg_clipfrac_lower"),
        truncated_share_framework=_mean(metrics, "response_length/clip_ratio"),
        effective_sample_size=_effective_sample_size(metrics),
        groups=groups,
        zero_variance_share=flat,
        partial_ratio=partial_ratio(samples),
        invalid_ratio=_invalid_ratio(samples if settled is None else settled),
        framework_partial_ratio=_mean(metrics, "fully_async/partial/partial_ratio"),
        framework_aborted_ratio=_mean(metrics, "response/aborted_ratio"),
    )


def accuracy(metrics: pl.DataFrame) -> tuple[Accuracy, ...]:
    """Return each core validation metric over the run."""
    rows = metrics.filter(pl.col("key").str.starts_with("val-core/") & pl.col("value").is_finite())
    return tuple(
        _accuracy(part.sort("step", "ts_ns")) for part in rows.sort("key").partition_by(
            "key", maintain_order=True
        )
    )  # fmt: skip


def zero_variance_groups(samples: pl.DataFrame) -> tuple[int | None, float | None]:
    """Return (groups of at least two rewarded trajectories, share of them with equal rewards).

    Worked example: rewards (1, 1), (0, 1), (0, 0) and a single 1: three groups, 2/3 flat.
    """
    known = samples.filter(pl.col("group_uid").is_not_null() & pl.col("reward").is_not_null())
    groups = (
        known.group_by("group_uid")
        .agg(n=pl.len(), flat=pl.col("reward").max() == pl.col("reward").min())
        .filter(pl.col("n") > 1)
    )
    if groups.is_empty():
        return None, None
    return len(groups), float(groups["flat"].sum() / len(groups))


def partial_ratio(samples: pl.DataFrame) -> float | None:
    """Return the share of trained trajectories whose tokens stem from several versions."""
    known = samples.filter(
        (pl.col("fate") == "trained")
        & pl.col("version_start").is_not_null()
        & pl.col("version_end").is_not_null()
    )
    partial = (known["version_start"] != known["version_end"]).sum()
    return float(partial / len(known)) if len(known) else None


def reward_curve(samples: pl.DataFrame, metrics: pl.DataFrame) -> tuple[pl.DataFrame, str | None]:
    """Return the mean reward (step, value) of each step, and what it was read from."""
    trained = samples.filter(pl.col("trained_step").is_not_null() & pl.col("reward").is_not_null())
    if not trained.is_empty():
        steps = trained.group_by(step="trained_step").agg(value=pl.col("reward").mean())
        return steps.sort("step"), "samples"
    for key in ("critic/rewards/mean", "critic/score/mean"):
        rows = metric_curve(metrics, key)
        if not rows.is_empty():
            return rows, key
    return rows, None


def metric_curve(metrics: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return the finite values (step, value) of one metric, in order of step."""
    rows = metrics.filter((pl.col("key") == key) & pl.col("value").is_finite())
    return rows.sort("step", "ts_ns").select("step", "value")


def _mean(metrics: pl.DataFrame, key: str) -> float | None:
    mean = metric_curve(metrics, key)["value"].mean()
    return mean if isinstance(mean, float) else None


def _accuracy(rows: pl.DataFrame) -> Accuracy:
    values = rows["value"]
    at = values.arg_max() or 0
    best = float(values[at])
    return Accuracy(
        key=rows["key"][0],
        first=float(values[0]),
        last=float(values[-1]),
        best=best,
        best_step=rows["step"][at],
        below_best=best - float(values[-1]),
        points=len(rows),
    )


def _kl(metrics: pl.DataFrame) -> Kl | None:
    values = metric_curve(metrics, "rollout_corr/kl")["value"].to_numpy()
    if not len(values):
        return None
    median = float(np.median(values))
    level: KlLevel = "healthy"
    if abs(median) > RAISED_KL:
        level = "broken" if abs(median) > BROKEN_KL else "raised"
    return Kl(median, float(np.abs(values).max()), abs(median) / HEALTHY_KL, level)


def _effective_sample_size(metrics: pl.DataFrame) -> EffectiveSampleSize | None:
    rows = metric_curve(metrics, "rollout_corr/rollout_is_eff_sample_size")
    values = rows["value"].to_numpy()
    if not len(values):
        return None
    last = float(np.median(values[-3:]))
    return EffectiveSampleSize(
        mean=float(values.mean()),
        last=float(values[-1]),
        lowest=float(values.min()),
        collapsed=last < COLLAPSED_ESS,
        length_correlation=_correlation(rows, metric_curve(metrics, "response_length/mean")),
    )


def _correlation(first: pl.DataFrame, second: pl.DataFrame) -> float | None:
    both = first.join(second, on="step")
    if len(both) < MIN_STEPS or both["value"].n_unique() < 2 or both["value_right"].n_unique() < 2:
        return None
    return float(both.select(pl.corr("value", "value_right", method="spearman")).item())


def _invalid_ratio(samples: pl.DataFrame) -> float | None:
    known = samples.filter(pl.col("fate").is_in(["trained", *LOST_FATES]))
    return float((known["fate"] == "aborted").sum() / len(known)) if len(known) else None
