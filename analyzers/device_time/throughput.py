"""Trained tokens and samples per second, with intervals over version windows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rlinsight.analyzers.device_time.per_window import VersionRow
from rlinsight.analyzers.device_time.steady import bootstrap_interval
from rlinsight.analyzers.result import Estimate, Throughput


def throughput(
    samples: pl.DataFrame,
    window: tuple[int, int],
    devices: int,
    versions: Sequence[VersionRow] = (),
) -> Throughput:
    """Return trained work consumed within `window` (epoch nanoseconds).

    Tokens are prompt + response, divided by the seconds of the window and by all devices
    of the job, as verl's `perf/throughput` counts them. The 95 % interval is a moving-block
    bootstrap over version windows. None where no trained sample is known: nothing recorded
    is not a throughput of 0.
    """
    start, end = window
    trained = samples.filter(
        (pl.col("fate") == "trained") & pl.col("consumed_ns").is_between(start, end)
    )
    seconds = (end - start) / 1e9
    if trained.is_empty() or seconds <= 0 or devices == 0:
        return Throughput(Estimate(None), Estimate(None), None, None)
    tokens = int((trained["prompt_tokens"] + trained["response_tokens"]).sum())
    rate, samples_per_s = tokens / seconds / devices, len(trained) / seconds
    spread = bootstrap_interval(
        [row.trained_tokens / devices for row in versions], [row.duration_s for row in versions]
    )
    low, high = spread or (None, None)
    scale = samples_per_s / rate if rate else None
    return Throughput(
        tokens_per_s_per_device=Estimate(rate, low, high),
        samples_per_s=Estimate(
            samples_per_s, *(None if x is None or scale is None else x * scale for x in (low, high))
        ),
        trained_tokens=tokens,
        trained_samples=len(trained),
    )
