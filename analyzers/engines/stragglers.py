"""Who is slow given its work, and who only had more work or a longer response.

Problem: workers of one batch end at different times. Either one had the longest response
(generation of a response is sequential, so a batch lasts as long as its longest one), or one
had more tokens, or one is a slow device. Only the last is a device to look at.

Two speeds tell them apart. If tokens of the longest response / seconds is the same for all
workers, each worker's time is explained by its longest response: a long tail. If all tokens /
seconds is the same, by its total: uneven work. A worker is slow when both are below its peers'.

Worked example (verl#658): 73.067, 118.574 and 166.683 s for 28013, 42765 and 41247 tokens,
longest 3768, 6233 and 8412. Longest / seconds is 51.6, 52.6 and 50.5 tokens/s: a long tail,
although total / seconds falls from 383 to 248. The batch idles 1 - mean / max = 0.283.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import polars as pl

Verdict = Literal["balanced", "long_tail", "uneven_work", "slow_replica", "mixed"]

#: Below this idle share of a batch there is nothing to explain.
IDLE_FLOOR = 0.05
#: Speeds within this spread (max / min - 1) are the same.
SAME_SPEED = 0.10
#: A worker this much slower than its peers' median, given its work, is slow.
SLOW = 1.25


@dataclass(frozen=True)
class WorkerSpeed:
    """One worker's part in a batch, of several batches the mean; speeds in tokens per second."""

    lane: str
    seconds: float
    tokens: float
    max_tokens: float
    tok_s_of_longest: float
    tok_s_of_total: float


@dataclass(frozen=True)
class BatchSpeed:
    """Why the workers of a batch end at different times.

    `idle_ratio` = 1 - mean / max of the workers' seconds, of several batches the sum of the
    means over the sum of the maxima; `slowest` is the last to end (on average), named as a slow
    device only if the verdict is `slow_replica`.
    """

    verdict: Verdict
    idle_ratio: float
    slowest: str
    workers: tuple[WorkerSpeed, ...]


def batch_speed(workers: pl.DataFrame) -> BatchSpeed | None:
    """Return the verdict on one batch, or on several one after the other.

    `workers` has one row each: lane, seconds, tokens (all of the worker), max_tokens (its
    longest response), and `batch` where there are several. None with fewer than two workers
    that did something.
    """
    if "batch" not in workers.columns:
        workers = workers.with_columns(batch=pl.lit(0))
    known = workers.filter((pl.col("seconds") > 0) & (pl.col("tokens") > 0))
    rows = [
        WorkerSpeed(lane, s, tokens, longest, longest / s, tokens / s)
        for lane, s, tokens, longest in known.group_by("lane")
        .agg(pl.col("seconds", "tokens", "max_tokens").mean())
        .sort("lane")
        .iter_rows()
    ]
    if len(rows) < 2:
        return None
    each = known.group_by("batch").agg(mean=pl.col("seconds").mean(), max=pl.col("seconds").max())
    idle = 1 - float(each["mean"].sum()) / float(each["max"].sum())
    slowest = max(rows, key=lambda row: row.seconds)
    return BatchSpeed(_verdict(idle, rows, slowest), idle, slowest.lane, tuple(rows))


def _verdict(idle: float, rows: Sequence[WorkerSpeed], slowest: WorkerSpeed) -> Verdict:
    if idle < IDLE_FLOOR:
        return "balanced"
    if _spread([row.tok_s_of_longest for row in rows]) <= SAME_SPEED:
        return "long_tail"
    if _spread([row.tok_s_of_total for row in rows]) <= SAME_SPEED:
        return "uneven_work"
    peers = [row for row in rows if row is not slowest]
    behind = (
        median(row.tok_s_of_longest for row in peers) / slowest.tok_s_of_longest,
        median(row.tok_s_of_total for row in peers) / slowest.tok_s_of_total,
    )
    return "slow_replica" if min(behind) >= SLOW else "mixed"


def _spread(speeds: Sequence[float]) -> float:
    return max(speeds) / min(speeds) - 1


def workers_of_requests(requests: pl.DataFrame, begins: pl.Series) -> pl.DataFrame:
    """Return the rows `batch_speed` takes, one a batch and replica, from finished requests.

    A batch is what was submitted between one of `begins` (ns, ascending) and the next. A
    worker's seconds run from the first submission in the batch to its last completion. Nothing
    where most batches begin before the one before has ended: work that streams has no batches.
    Validation, aborted and unfinished requests are left out.
    """
    starts = pl.DataFrame({"begin_ns": begins}).with_row_index("batch")
    done = (
        finished(requests)
        .sort("submit_ns")
        .join_asof(starts, left_on="submit_ns", right_on="begin_ns")
        .filter(pl.col("batch").is_not_null())
    )
    batches = (
        done.group_by("batch")
        .agg(first_ns=pl.col("submit_ns").min(), last_ns=pl.col("end_ns").max())
        .sort("batch")
    )
    streams = (batches["first_ns"].shift(-1) < batches["last_ns"]).mean()
    if isinstance(streams, float) and streams > 0.5:
        done = done.clear()
    return (
        done.join(batches, on="batch")
        .group_by("batch", "lane")
        .agg(
            seconds=(pl.col("end_ns").max() - pl.col("first_ns").first()) / 1e9,
            tokens=pl.col("response_tokens").sum(),
            max_tokens=pl.col("response_tokens").max(),
        )
        .sort("batch", "lane")
    )


def finished(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests that generated to their own end, validation left out."""
    return requests.filter(
        pl.col("end_ns").is_not_null()
        & (pl.col("end_ns") > pl.col("submit_ns"))
        & pl.col("response_tokens").is_not_null()
        & ~pl.col("validate").fill_null(value=False)
        & pl.col("finish").is_in(["stop", "length"])
    )
