"""Trained tokens and samples per second, with intervals over version windows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rlinsight.analyzers.device_time.per_window import VersionRow, interval_of_ratio
from rlinsight.analyzers.device_time.trained import tokens_of_all
from rlinsight.analyzers.result import Estimate, Throughput


def throughput(
    samples: pl.DataFrame,
    window: tuple[int, int],
    devices: int,
    versions: Sequence[VersionRow] = (),
) -> Throughput:
    """Return trained work consumed within `window` (epoch nanoseconds).

    Tokens are prompt + response, divided by the seconds of the window and by all `devices`
    of the job, as verl's `perf/throughput` counts them; a sample of unknown length is taken
    to be as long as the others. The 95 % intervals are moving-block bootstraps over version
    windows. None where no trained sample is known: nothing recorded is not a throughput of 0.
    """
    start, end = window
    trained = samples.filter(
        (pl.col("fate") == "trained") & pl.col("consumed_ns").is_between(start, end)
    )
    seconds = (end - start) / 1e9
    if trained.is_empty() or seconds <= 0 or devices == 0:
        return Throughput(Estimate(None), Estimate(None), None, None)
    lengths = (trained["prompt_tokens"] + trained["response_tokens"]).drop_nulls()
    tokens = tokens_of_all(int(lengths.sum()), len(lengths), len(trained))
    per_device = [(row.trained_tokens, row.duration_s * devices) for row in versions]
    per_job = [(row.trained_samples, row.duration_s) for row in versions]
    return Throughput(
        tokens_per_s_per_device=_estimate(tokens, seconds * devices, per_device),
        samples_per_s=_estimate(len(trained), seconds, per_job),
        trained_tokens=tokens,
        trained_samples=len(trained),
    )


def _estimate(
    amount: int | None, time_s: float, windows: Sequence[tuple[int | None, float]]
) -> Estimate:
    """Return amount / time, with the interval over windows of (amount, time)."""
    if amount is None:
        return Estimate(None)
    known = [(float(done), spent) for done, spent in windows if done is not None]
    spread = interval_of_ratio(known, (amount, time_s))
    return Estimate(amount / time_s, *(spread or (None, None)))
