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

import numpy as np
import polars as pl

from rlinsight.analyzers.slots import running_levels

Verdict = Literal["balanced", "long_tail", "uneven_work", "slow_replica", "mixed"]

#: Below this idle share of a batch there is nothing to explain.
IDLE_FLOOR = 0.05
#: Speeds within this spread (max / min - 1) are the same.
SAME_SPEED = 0.10
#: A worker this much slower than its peers' median, given its work, is slow.
SLOW = 1.25
#: Requests of a replica below which its speed is not judged.
MIN_REQUESTS = 10


@dataclass(frozen=True)
class WorkerSpeed:
    """One worker's part in a batch; speeds in tokens per second."""

    lane: str
    seconds: float
    tokens: float
    max_tokens: float
    tok_s_of_longest: float
    tok_s_of_total: float


@dataclass(frozen=True)
class BatchSpeed:
    """Why the workers of a batch end at different times.

    `idle_ratio` = 1 - mean / max of the workers' seconds; `slowest` is the last to end, named
    as a slow device only if the verdict is `slow_replica`.
    """

    verdict: Verdict
    idle_ratio: float
    slowest: str
    workers: tuple[WorkerSpeed, ...]


@dataclass(frozen=True)
class ReplicaSpeed:
    """A replica's decode speed beside its peers of the same engine kind.

    `slowdown` is the time per token relative to the peers' median at equal concurrency (1 =
    as fast); `slow` is None where that cannot be judged.
    """

    lane: str
    requests: int
    tokens: int
    ms_per_token: float
    mean_concurrency: float
    slowdown: float | None
    slow: bool | None


def batch_speed(workers: pl.DataFrame) -> BatchSpeed | None:
    """Return the verdict on one batch.

    `workers` has one row each: lane, seconds, tokens (all of the worker), max_tokens (its
    longest response). None with fewer than two workers that did something.
    """
    rows = [
        WorkerSpeed(lane, s, tokens, longest, longest / s, tokens / s)
        for lane, s, tokens, longest in workers.select(
            "lane", "seconds", "tokens", "max_tokens"
        ).iter_rows()
        if s > 0 and tokens > 0
    ]
    if len(rows) < 2:
        return None
    seconds = [row.seconds for row in rows]
    idle = 1 - sum(seconds) / len(seconds) / max(seconds)
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


def workers_of_requests(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the rows `batch_speed` takes, one a replica, from the requests of one batch.

    A worker's seconds run from the first submission in the batch to its last completion.
    Validation, aborted and unfinished requests are left out.
    """
    done = _finished(requests)
    return (
        done.group_by("lane")
        .agg(
            seconds=(pl.col("end_ns").max() - pl.lit(done["submit_ns"].min())) / 1e9,
            tokens=pl.col("response_tokens").sum(),
            max_tokens=pl.col("response_tokens").max(),
        )
        .sort("lane")
    )


def replica_speeds(
    requests: pl.DataFrame, engine_kinds: dict[str, str | None]
) -> tuple[ReplicaSpeed, ...]:
    """Return how fast each replica decodes, given how many requests it ran at once.

    Time per token grows with concurrency, so log(time per token) of each request is fitted as
    a replica's level + b x log(mean requests in flight on its lane during the request); the
    levels are compared within an engine kind. Where concurrency hardly varies within lanes, b
    is unknown, and only replicas that were no fuller than their peers are judged. `slow` also
    asks that the difference exceeds three standard errors.
    """
    done = _finished(requests).filter(pl.col("response_tokens") > 1)
    if done.is_empty():
        return ()
    done = _with_concurrency(done, requests).with_columns(
        kind=pl.col("lane")
        .cast(pl.String)
        .replace_strict(
            {lane: kind or "unknown" for lane, kind in engine_kinds.items()},
            default="unknown",
            return_dtype=pl.String,
        )
    )
    kinds = done.partition_by("kind", maintain_order=True)
    found = [speed for kind in kinds for speed in _compared(kind)]
    return tuple(sorted(found, key=lambda speed: speed.lane))


def _finished(requests: pl.DataFrame) -> pl.DataFrame:
    return requests.filter(
        pl.col("end_ns").is_not_null()
        & (pl.col("end_ns") > pl.col("submit_ns"))
        & pl.col("response_tokens").is_not_null()
        & ~pl.col("validate").fill_null(value=False)
        & pl.col("finish").is_in(["stop", "length"])
    )


def _with_concurrency(done: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Add `ms` per token and `level`, the mean requests in flight on the lane meanwhile."""
    window = (requests["submit_ns"].min(), pl.concat([requests["end_ns"], done["end_ns"]]).max())
    lanes = done["lane"].unique().sort().to_list()
    levels = running_levels(requests, lanes, window)  # type: ignore[arg-type]
    area = pl.col("running") * (pl.col("end_ns") - pl.col("start_ns"))
    levels = levels.select(
        "lane", "running", from_ns="start_ns", area=(area.cum_sum() - area).over("lane")
    ).sort("from_ns")
    began = pl.coalesce("first_token_ns", "submit_ns")
    names = levels.schema["lane"]
    done = done.select(pl.col("lane").cast(names), "response_tokens", "end_ns", began_ns=began)
    at: list[pl.Series] = []
    done = done.with_row_index("row")
    for column in ("began_ns", "end_ns"):
        times = done.select("row", "lane", column).sort(column)
        joined = times.join_asof(
            levels, left_on=column, right_on="from_ns", by="lane", check_sortedness=False
        )
        reached = pl.col("area") + pl.col("running") * (pl.col(column) - pl.col("from_ns"))
        at.append(joined.sort("row").select(reached)["area"])
    width = pl.col("end_ns") - pl.col("began_ns")
    return done.with_columns(
        ms=width / 1e6 / pl.col("response_tokens"), level=(at[1] - at[0]) / width
    ).filter((pl.col("ms") > 0) & (pl.col("level") > 0))


def _compared(done: pl.DataFrame) -> list[ReplicaSpeed]:
    """Compare the lanes of one engine kind."""
    data = done.select("lane", y=pl.col("ms").log(), x=pl.col("level").log())
    centred = data.select(
        y=pl.col("y") - pl.col("y").mean().over("lane"),
        x=pl.col("x") - pl.col("x").mean().over("lane"),
    )
    x, y = centred["x"].to_numpy(), centred["y"].to_numpy()
    varies = len(x) > 0 and float(np.mean(x**2)) > 1e-3
    slope = float(x @ y / (x @ x)) if varies else None
    spread = float(np.std(y - (slope or 0.0) * x))
    table = done.group_by("lane").agg(
        requests=pl.len(),
        tokens=pl.col("response_tokens").sum(),
        ms=pl.col("ms").median(),
        mean_level=pl.col("level").mean(),
        effect=(pl.col("ms").log() - (slope or 0.0) * pl.col("level").log()).mean(),
    )
    rows = table.sort("lane").to_dicts()
    return [_speed(row, rows, slope, spread) for row in rows]


def _speed(
    row: dict[str, float], rows: Sequence[dict[str, float]], slope: float | None, spread: float
) -> ReplicaSpeed:
    peers = [other for other in rows if other is not row and other["requests"] >= MIN_REQUESTS]
    slowdown, slow = None, None
    if peers and row["requests"] >= MIN_REQUESTS:
        behind = row["effect"] - median(peer["effect"] for peer in peers)
        slowdown = float(np.exp(behind))
        fuller = row["mean_level"] > 1.2 * median(peer["mean_level"] for peer in peers)
        beyond_noise = behind > 3 * spread / row["requests"] ** 0.5
        if slope is not None or not fuller:
            slow = slowdown >= SLOW and beyond_noise
    return ReplicaSpeed(
        lane=str(row["lane"]),
        requests=int(row["requests"]),
        tokens=int(row["tokens"]),
        ms_per_token=row["ms"],
        mean_concurrency=row["mean_level"],
        slowdown=slowdown,
        slow=slow,
    )
