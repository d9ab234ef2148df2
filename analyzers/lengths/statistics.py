"""How long responses are, where the variance comes from, and what it costs.

Problem: a batch lasts as long as its longest response and a mini-batch as long as its fullest
rank, so it is the spread of lengths that costs device time, not their mean. Lengths are
response tokens of the trajectories trained in the window (where no sample is known, of the
finished requests), so a trajectory counts once however many attempts it took.

Variance (population, tokens^2) splits exactly into what responses to one prompt differ by and
what prompts differ by: total = sum n_g var_g / n + sum n_g (mean_g - mean)^2 / n.

Worked example: group a with 10 and 30, group b with 40 and 40: mean 30, total 150, within
(2 x 100 + 0) / 4 = 50, between (2 x 100 + 2 x 100) / 4 = 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from rlinsight.analyzers.lengths.bias import LengthBias, length_bias
from rlinsight.analyzers.lengths.cap import LengthCap, configured_cap, length_cap
from rlinsight.analyzers.lengths.growth import Drift, length_drift
from rlinsight.analyzers.lengths.histogram import LengthBin, length_histogram
from rlinsight.analyzers.lengths.rank_tokens import reported_dp_imbalance
from rlinsight.analyzers.lengths.tail import TailCost, tail_cost
from rlinsight.analyzers.staleness.identity import key
from rlinsight.analyzers.staleness.lags import cohort, trained_in
from rlinsight.trace.topology import Topology

Window = tuple[int, int]


@dataclass(frozen=True)
class LengthRow:
    """The lengths of one step or replica, in response tokens."""

    key: int | str
    samples: int
    mean: float
    std: float
    cv: float | None
    p50: float
    p95: float
    p99: float
    max: int
    cap_share: float


@dataclass(frozen=True)
class VarianceSplit:
    """Variance of lengths (tokens^2) of the samples whose group is known (`grouped_share`)."""

    total_var: float | None
    within_group_var: float | None
    between_group_var: float | None
    groups: int
    grouped_share: float | None


@dataclass(frozen=True)
class Lengths:
    """Response lengths in tokens; `cv` = std / mean; None is unknown.

    `population` tells whose lengths these are, `samples` how many are known, `known_share` is
    their share of the population. `histogram` counts them in bins of equal width, the first
    from the shortest, empty ones included. `dp_imbalance` is
    max / mean tokens of data-parallel ranks - 1, as the framework reported it after its
    balancing, mean over steps.
    """

    population: Literal["trained", "requests"]
    samples: int
    known_share: float | None
    mean: float | None
    std: float | None
    cv: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: int | None
    cap_share: float | None
    within_group_var: float | None
    between_group_var: float | None
    tail_cost_device_seconds: float | None
    dp_imbalance: float | None
    histogram: tuple[LengthBin, ...]
    cap: LengthCap
    variance: VarianceSplit
    tail: TailCost | None
    drift: Drift | None
    bias: LengthBias | None
    steps: tuple[LengthRow, ...]
    replicas: tuple[LengthRow, ...]


def lengths(
    samples: pl.DataFrame,
    requests: pl.DataFrame,
    *,
    window: Window | None = None,
    topology: Topology | None = None,
    counters: pl.DataFrame | None = None,
    spans: pl.DataFrame | None = None,
    metrics: pl.DataFrame | None = None,
    config: Mapping[str, Any] | None = None,
) -> Lengths:
    """Return the length statistics of `window` (epoch ns, None: all) of a whole trace's tables."""
    population, chosen = _population(samples, requests, window)
    known = chosen.filter(pl.col("response_tokens").is_not_null())
    ended = requests if window is None else requests.filter(pl.col("end_ns").is_between(*window))
    cap = length_cap(known, ended, max_response_tokens=configured_cap(config))
    known = known.with_columns(cut=cap.reached())
    whole = next(iter(length_rows(known.with_columns(all=pl.lit("all")), "all")), None)
    split = variance_split(known)
    tail = tail_cost(requests, topology=topology, counters=counters, spans=spans, window=window)
    steps = length_rows(known, "trained_step")
    return Lengths(
        population=population,
        samples=len(known),
        known_share=len(known) / len(chosen) if len(chosen) else None,
        **{name: getattr(whole, name, None) for name in _STATISTICS},
        cap_share=cap.cap_share,
        within_group_var=split.within_group_var,
        between_group_var=split.between_group_var,
        tail_cost_device_seconds=None if tail is None else tail.cost_device_seconds,
        dp_imbalance=reported_dp_imbalance(metrics, known["trained_step"]),
        histogram=length_histogram(known["response_tokens"]),
        cap=cap,
        variance=split,
        tail=tail,
        drift=length_drift([float(row.key) for row in steps], [row.mean for row in steps]),
        bias=length_bias(cohort(samples, requests, window)),
        steps=steps,
        replicas=length_rows(_with_replica(known, requests), "lane"),
    )


_STATISTICS = ("mean", "std", "cv", "p50", "p95", "p99", "max")


def _population(
    samples: pl.DataFrame, requests: pl.DataFrame, window: Window | None
) -> tuple[Literal["trained", "requests"], pl.DataFrame]:
    trained = trained_in(samples, window)
    if not trained.is_empty():
        return "trained", trained
    done = requests.filter(
        pl.col("finish").is_in(["stop", "length"])
        & pl.col("validate").ne_missing(pl.lit(value=True))
    )
    if window is not None:
        done = done.filter(pl.col("end_ns").is_between(*window))
    unknown = {"group_uid": pl.String, "trained_step": pl.Int32}
    return "requests", done.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in unknown.items()
    )


def length_rows(samples: pl.DataFrame, by: str) -> tuple[LengthRow, ...]:
    """Return the lengths per value of column `by`, in its order; rows without one are left out.

    `samples` has response_tokens, all known, and `cut` (whether a limit cut the response).
    """
    table = length_table(samples, by)
    return tuple(LengthRow(**row) for row in table.rename({by: "key"}).iter_rows(named=True))


def length_table(samples: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return `length_rows` as a frame, for keys too many to make objects of (groups)."""
    tokens = pl.col("response_tokens")
    mean, std = tokens.mean(), tokens.std(ddof=0)
    return (
        samples.filter(pl.col(by).is_not_null())
        .group_by(by)
        .agg(
            samples=pl.len(),
            mean=mean,
            std=std,
            cv=pl.when(mean > 0).then(std / mean),
            p50=tokens.quantile(0.50, "linear"),
            p95=tokens.quantile(0.95, "linear"),
            p99=tokens.quantile(0.99, "linear"),
            max=tokens.max(),
            cap_share=pl.col("cut").mean(),
        )
        .sort(by)
    )


def variance_split(samples: pl.DataFrame) -> VarianceSplit:
    """Return the variance of response_tokens within and between groups of `group_uid`."""
    grouped = samples.filter(
        pl.col("group_uid").is_not_null() & pl.col("response_tokens").is_not_null()
    ).with_columns(pl.col("response_tokens").cast(pl.Float64))
    share = len(grouped) / len(samples) if len(samples) else None
    if grouped.is_empty():
        return VarianceSplit(None, None, None, 0, share)
    tokens = pl.col("response_tokens")
    centred = grouped.with_columns(tokens - tokens.mean())
    groups = centred.group_by(key("group_uid").alias("key")).agg(
        n=pl.len(), sum=tokens.sum(), squares=(tokens**2).sum()
    )
    n, squared_mean = len(grouped), pl.col("sum") ** 2 / pl.col("n")
    within, between = groups.select(
        within=(pl.col("squares") - squared_mean).sum() / n, between=squared_mean.sum() / n
    ).row(0)
    total = float(grouped.select(tokens.var(ddof=0)).item())
    return VarianceSplit(total, within, between, len(groups), share)


def _with_replica(samples: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Add the replica that completed each sample (`lane`, null: unknown)."""
    if "lane" in samples.columns:
        return samples
    named = requests.filter(pl.col("sample_uid").is_not_null())
    named = named if named["submit_ns"].is_sorted() else named.sort("submit_ns")
    last = named.group_by(key("sample_uid").alias("key")).agg(pl.col("lane").last())
    return samples.with_columns(key=key("sample_uid")).join(last, on="key", how="left")
