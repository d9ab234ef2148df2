"""How fast each replica decodes beside its peers, given how full it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import polars as pl

from rlinsight.analyzers.engines.slots import running_levels
from rlinsight.analyzers.engines.stragglers import SLOW, finished

#: Requests of a replica below which its speed is not judged.
MIN_REQUESTS = 10
#: About so many requests are fitted at most.
FITTED_REQUESTS = 100_000


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


def replica_speeds(
    requests: pl.DataFrame, engine_kinds: dict[str, str | None]
) -> tuple[ReplicaSpeed, ...]:
    """Return how fast each replica decodes, given how many requests it ran at once.

    Time per token grows with concurrency, so log(time per token) of each request is fitted as
    a replica's level + b x log(mean requests in flight on its lane during the request); the
    levels are compared within an engine kind. Where concurrency hardly varies within lanes, b
    is unknown, and only replicas that were no fuller than their peers are judged. `slow` also
    asks that the difference exceeds three standard errors. Of many requests every k-th is
    fitted; counts are of all.
    """
    done = finished(requests).filter(pl.col("response_tokens") > 1)
    if done.is_empty():
        return ()
    totals = done.group_by("lane").agg(requests=pl.len(), tokens=pl.col("response_tokens").sum())
    fitted = done.gather_every(max(1, len(done) // FITTED_REQUESTS))
    fitted = _with_concurrency(fitted, requests).with_columns(
        kind=pl.col("lane")
        .cast(pl.String)
        .replace_strict(
            {lane: kind or "unknown" for lane, kind in engine_kinds.items()},
            default="unknown",
            return_dtype=pl.String,
        )
    )
    kinds = fitted.partition_by("kind", maintain_order=True)
    found = [speed for kind in kinds for speed in _compared(kind, totals)]
    return tuple(sorted(found, key=lambda speed: speed.lane))


def _with_concurrency(done: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Add `ms` per token and `level`, the mean requests in flight on the lane meanwhile."""
    window = (requests["submit_ns"].min(), pl.concat([requests["end_ns"], done["end_ns"]]).max())
    lanes = done["lane"].unique().sort().to_list()
    levels = running_levels(requests, lanes, window)  # type: ignore[arg-type]
    area = pl.col("running") * (pl.col("end_ns") - pl.col("start_ns"))
    levels = levels.select(
        "lane", "running", from_ns="start_ns", area=(area.cum_sum() - area).cast(pl.Float64)
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


def _compared(done: pl.DataFrame, totals: pl.DataFrame) -> list[ReplicaSpeed]:
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
        fitted=pl.len(),
        ms=pl.col("ms").median(),
        mean_level=pl.col("level").mean(),
        effect=(pl.col("ms").log() - (slope or 0.0) * pl.col("level").log()).mean(),
    )
    rows = table.with_columns(pl.col("lane").cast(pl.String)).join(totals, on="lane").to_dicts()
    return [_speed(row, rows, slope, spread) for row in rows]


def _speed(
    row: dict[str, float], rows: Sequence[dict[str, float]], slope: float | None, spread: float
) -> ReplicaSpeed:
    peers = [other for other in rows if other is not row and other["fitted"] >= MIN_REQUESTS]
    slowdown, slow = None, None
    if peers and row["fitted"] >= MIN_REQUESTS:
        behind = row["effect"] - median(peer["effect"] for peer in peers)
        slowdown = float(np.exp(behind))
        fuller = row["mean_level"] > 1.2 * median(peer["mean_level"] for peer in peers)
        beyond_noise = behind > 3 * spread / row["fitted"] ** 0.5
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
