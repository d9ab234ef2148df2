"""Trained tokens and samples per second."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.result import Estimate, Throughput


def throughput(samples: pl.DataFrame, window: tuple[int, int], devices: int) -> Throughput:
    """Return trained work consumed within `window` (epoch nanoseconds).

    Tokens are prompt + response, divided by the seconds of the window and by all devices
    of the job, as verl's `perf/throughput` counts them. None where no trained sample is
    known: nothing recorded is not a throughput of 0.
    """
    start, end = window
    trained = samples.filter(
        (pl.col("fate") == "trained") & pl.col("consumed_ns").is_between(start, end)
    )
    seconds = (end - start) / 1e9
    if trained.is_empty() or seconds <= 0 or devices == 0:
        return Throughput(Estimate(None), Estimate(None), None, None)
    tokens = int((trained["prompt_tokens"] + trained["response_tokens"]).sum())
    return Throughput(
        tokens_per_s_per_device=Estimate(tokens / seconds / devices),
        samples_per_s=Estimate(len(trained) / seconds),
        trained_tokens=tokens,
        trained_samples=len(trained),
    )
