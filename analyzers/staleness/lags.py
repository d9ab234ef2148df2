"""How old the weights behind a trained trajectory were, and what became of the others.

Problem: "staleness" is quoted as a fraction of a sync cycle, in optimizer updates, in batches
or in versions, measured from the first or the last token, over all or only over the selected
samples. Here the unit is always parameter versions, both ends are given, and beside each
figure stands the share of samples for which it is known: a missing version is not a lag of 0.

    worst token: trained_version - version_start      (its first token, the oldest weights)
    last token:  trained_version - version_end
    span:        version_end - version_start          (> 0: a partial rollout, several versions)

Worked example: trained on version 5, a generated wholly under 5, b under 3 to 4, c unknown:
worst token {0: 1, 2: 1}, last token {0: 1, 1: 1}, span {0: 1, 1: 1}, known for 2 of 3, stale
1/2, partial 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from rlinsight.analyzers.staleness.identity import key

Window = tuple[int, int]

#: The fates of table `samples` that mean the trajectory will never be trained.
LOST_FATES: Final = ("dropped_stale", "filtered", "aborted")


@dataclass(frozen=True)
class Lags:
    """A histogram of lags, in versions; negative lags (newer than the trainer) are kept.

    `known_share` is the share of samples whose lag is known; None where there are no samples.
    """

    counts: dict[int, int]
    mean_versions: float | None
    max_versions: int | None
    known_share: float | None


@dataclass(frozen=True)
class Fates:
    """What became of the samples produced in the window; the shares sum to 1.

    Samples that nobody gave a fate are `unconsumed`: in a queue, or left there at the end.
    """

    samples: int
    trained_share: float | None
    dropped_share: float | None  # dropped for being too stale
    filtered_share: float | None
    aborted_share: float | None
    unconsumed_share: float | None


@dataclass(frozen=True)
class Staleness:
    """Lags of the samples trained in the window, in versions, and the fates of all samples.

    `stale_share` is the share with a worst-token lag above 0, `partial_share` that with a
    span above 0, each of the samples for which it is known.
    """

    trained_samples: int
    worst_token: Lags
    last_token: Lags
    span: Lags
    stale_share: float | None
    partial_share: float | None
    fates: Fates


def staleness(
    samples: pl.DataFrame, requests: pl.DataFrame | None = None, *, window: Window | None = None
) -> Staleness:
    """Return the lags of samples trained, and the fates of samples produced, in `window`.

    `window` is in epoch nanoseconds, None for the whole trace. `requests` only tells when
    trajectories were given up that were never produced.
    """
    trained = trained_in(samples, window)
    worst = lags(trained, "trained_version", "version_start")
    span = lags(trained, "version_end", "version_start")
    return Staleness(
        trained_samples=len(trained),
        worst_token=worst,
        last_token=lags(trained, "trained_version", "version_end"),
        span=span,
        stale_share=_share_above_zero(worst),
        partial_share=_share_above_zero(span),
        fates=fates(cohort(samples, requests, window)),
    )


def trained_in(samples: pl.DataFrame, window: Window | None) -> pl.DataFrame:
    """Return the trained samples that the trainer took within `window`."""
    trained = samples.filter(pl.col("fate") == "trained")
    if window is None:
        return trained
    return trained.filter(pl.coalesce("consumed_ns", "produced_ns").is_between(*window))


def cohort(
    samples: pl.DataFrame, requests: pl.DataFrame | None, window: Window | None
) -> pl.DataFrame:
    """Return the samples that came into being within `window`, whatever became of them later.

    A sample came into being when it was produced; one that was not is dated by when it was
    consumed, or by the last of its requests. Without a window all samples are returned, even
    those without any time.
    """
    return samples.filter(born_in(samples, requests, window))


def born_in(
    samples: pl.DataFrame, requests: pl.DataFrame | None, window: Window | None
) -> pl.Series:
    """Return which samples are in the `cohort` of `window`."""
    if window is None:
        return pl.repeat(value=True, n=len(samples), eager=True)
    born = samples.select(born=pl.coalesce("produced_ns", "consumed_ns"))["born"]
    inside = born.is_between(*window).fill_null(value=False)
    if requests is None or born.null_count() == 0:
        return inside
    last = last_request_ns(requests).filter(pl.col("last_ns").is_between(*window))["key"]
    keys = samples.select(key("sample_uid")).to_series()
    return inside | (born.is_null() & keys.is_in(last.implode()))


def last_request_ns(requests: pl.DataFrame) -> pl.DataFrame:
    """Return (key, last_ns): when the last request of each training sample ended."""
    training = requests.filter(
        pl.col("sample_uid").is_not_null() & pl.col("validate").ne_missing(pl.lit(value=True))
    )
    last = pl.coalesce("end_ns", "submit_ns").max()
    return training.group_by(key("sample_uid").alias("key")).agg(last_ns=last)


def lags(samples: pl.DataFrame, newer: str, older: str) -> Lags:
    """Return the histogram of column `newer` minus column `older`, in versions."""
    difference = samples.select(lag=pl.col(newer) - pl.col(older))["lag"]
    known = difference.drop_nulls()
    mean, largest = known.mean(), known.max()
    counts = known.value_counts(sort=False).sort("lag")
    return Lags(
        counts=dict(zip(counts["lag"].to_list(), counts["count"].to_list(), strict=True)),
        mean_versions=mean if isinstance(mean, float) else None,
        max_versions=largest if isinstance(largest, int) else None,
        known_share=len(known) / len(samples) if len(samples) else None,
    )


def fates(samples: pl.DataFrame) -> Fates:
    """Return the share of each fate among `samples`."""
    total = len(samples)
    counted = samples["fate"].fill_null("unconsumed").value_counts()
    count: dict[str, int] = dict(counted.iter_rows())

    def share(fate: str) -> float | None:
        return count.get(fate, 0) / total if total else None

    return Fates(
        samples=total,
        trained_share=share("trained"),
        dropped_share=share("dropped_stale"),
        filtered_share=share("filtered"),
        aborted_share=share("aborted"),
        unconsumed_share=share("unconsumed"),
    )


def _share_above_zero(histogram: Lags) -> float | None:
    known = sum(histogram.counts.values())
    above = sum(count for lag, count in histogram.counts.items() if lag > 0)
    return above / known if known else None
