"""Data-parallel balance: tokens and times of the training ranks.

Problem: ranks meet in collectives, so their times come out equal whichever of them waits. The
tokens of each rank tell what its share of the work was; times only differ between ranks where
they do not wait for each other inside the activity.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import polars as pl

from rlinsight.analyzers.device_time.intervals import union
from rlinsight.analyzers.tables import attr
from rlinsight.trace.topology import Topology

#: A rank this much slower per token than the median rank is slow.
SLOW_RANK = 1.2
#: Below this difference of their times the ranks waited for each other.
SAME_TIME = 0.05


@dataclass(frozen=True)
class RankWork:
    """One data-parallel rank over all calls; `slowdown` is its time per token / the median's.

    `slow` is None where the ranks' times are the same: they waited for each other, and the
    time per token says nothing about the device.
    """

    lane: str
    calls: int
    tokens: int | None
    seconds: float
    slowdown: float | None
    slow: bool | None


@dataclass(frozen=True)
class RankBalance:
    """Data-parallel balance of one activity.

    `dp_imbalance` = max / mean tokens of the ranks - 1, `time_imbalance` the same of their
    times, means over calls. `lost_share` = 1 - mean / max tokens, weighted with the calls'
    durations: the share of rank time that waits for the rank with the most tokens, if time
    follows tokens (ranks meet in collectives, so their times look equal whoever waits).
    """

    activity: str
    calls: int
    dp_imbalance: float | None
    dp_imbalance_max: float | None
    time_imbalance: float
    lost_share: float | None
    ranks: tuple[RankWork, ...]


def rank_balance(
    spans: pl.DataFrame, topology: Topology, activity: str = "update_actor"
) -> RankBalance | None:
    """Return the balance of one activity over the training ranks.

    Spans of different ranks that overlap are one call. Tokens are the spans' attribute
    `tokens`, unknown where a rank does not report them. None with fewer than two ranks.

    Worked example: two ranks with 300 and 100 tokens, both 4 s: dp_imbalance 0.5,
    time_imbalance 0, lost_share 1 - 200 / 300.
    """
    lanes = [lane.id for lane in topology.lanes if lane.role == "trainer_rank"]
    mine = (
        spans.filter(
            pl.col("lane").is_in(lanes)
            & (pl.col("activity") == activity)
            & pl.col("end_ns").is_not_null()
        )
        .select("lane", "start_ns", "end_ns", tokens=attr("tokens").cast(pl.Int64, strict=False))
        .sort("start_ns")
    )
    if mine["lane"].n_unique() < 2:
        return None
    calls = _calls(mine)
    lost = calls.filter(pl.col("lost").is_not_null())
    weighted = (pl.col("lost") * pl.col("ns")).sum() / pl.col("ns").sum()
    return RankBalance(
        activity=activity,
        calls=len(calls),
        dp_imbalance=_number(calls["tokens"].mean()),
        dp_imbalance_max=_number(calls["tokens"].max()),
        time_imbalance=_number(calls["seconds"].mean()) or 0.0,
        lost_share=_number(lost.select(weighted).item()) if len(lost) else None,
        ranks=_ranks(mine),
    )


def _calls(mine: pl.DataFrame) -> pl.DataFrame:
    """Return per call the imbalance of tokens and of times, the lost share, and its length."""
    calls = union(mine.select("start_ns", "end_ns")).select(call="start_ns")
    width = pl.col("end_ns") - pl.col("start_ns")
    placed = mine.join_asof(calls, left_on="start_ns", right_on="call", coalesce=False)
    known = pl.col("tokens").null_count() == 0
    mean, most = pl.col("tokens").mean(), pl.col("tokens").max()
    return (
        placed.group_by("call")
        .agg(
            n=pl.len(),
            ns=width.max(),
            seconds=width.max() / width.mean() - 1,
            lost=pl.when(known).then(1 - mean / most),
            tokens=pl.when(known).then(most / mean - 1),
        )
        .filter(pl.col("n") > 1)
    )


def _ranks(mine: pl.DataFrame) -> tuple[RankWork, ...]:
    table = mine.group_by("lane").agg(
        calls=pl.len(),
        tokens=pl.when(pl.col("tokens").null_count() == 0).then(pl.col("tokens").sum()),
        seconds=(pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9,
    )
    rows = table.sort("lane").to_dicts()
    paces = [row["seconds"] / row["tokens"] for row in rows if row["tokens"]]
    usual = median(paces) if len(paces) == len(rows) else None
    typical_s = median(row["seconds"] for row in rows)
    return tuple(_rank(row, usual, row["seconds"] / typical_s - 1) for row in rows)


def _rank(row: dict[str, float], usual: float | None, longer: float) -> RankWork:
    slowdown = row["seconds"] / row["tokens"] / usual if usual else None
    judged = slowdown is not None and abs(longer) > SAME_TIME
    return RankWork(
        lane=str(row["lane"]),
        calls=int(row["calls"]),
        tokens=None if row["tokens"] is None else int(row["tokens"]),
        seconds=row["seconds"],
        slowdown=slowdown,
        slow=slowdown >= SLOW_RANK and longer > 0 if judged and slowdown is not None else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
