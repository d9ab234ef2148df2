"""Bubbles: when devices idle, whose they are, why, and how much they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rlinsight.analyzers.device_time.causes import Evidence
from rlinsight.analyzers.device_time.pools import POOL_NAMES
from rlinsight.analyzers.tables import attr, devices_of, within
from rlinsight.trace.topology import Topology

#: How many bubbles a report lists one by one, the largest first. Totals are over all.
LISTED = 200


@dataclass(frozen=True)
class Bubble:
    """A maximal interval in which devices of one pool idle for one cause.

    `owner` is the side whose devices idle, `share` the bubble's device time per device time of
    that side's pool in the window, `mini_batches` the interval in units of the mean
    training time of a PPO mini-batch (None where that is unknown).
    """

    owner: str
    cause: str
    start_ns: int
    end_ns: int
    device_seconds: float
    share: float
    mini_batches: float | None
    lanes: tuple[str, ...]
    evidence: dict[str, float | str]


@dataclass(frozen=True)
class CauseTotal:
    """All bubbles of one owner and cause; `share` is of the pool's device time."""

    owner: str
    cause: str
    bubbles: int
    device_seconds: float
    share: float
    mini_batches: float | None
    longest_s: float


@dataclass(frozen=True)
class Bubbles:
    """Totals by owner and cause, the largest share of its pool first; the largest bubbles."""

    totals: tuple[CauseTotal, ...]
    largest: tuple[Bubble, ...]
    mini_batch_s: float | None


def bubbles(
    idle: pl.DataFrame, merged: pl.DataFrame, known: Evidence, counters: pl.DataFrame
) -> Bubbles:
    """Return the bubbles from `merging.idle_segments` and `merging.merged_bubbles`.

    Idle intervals of several devices of a pool that overlap and share a cause are one bubble;
    its device-seconds are the sum over the devices.
    """
    mini_batch_s = mini_batch_seconds(known)
    pool_ns = _pool_ns(known)
    return Bubbles(
        totals=tuple(_totals(merged, pool_ns, mini_batch_s)),
        largest=tuple(_largest(idle, merged, known, counters, pool_ns, mini_batch_s)),
        mini_batch_s=mini_batch_s,
    )


def mini_batch_seconds(known: Evidence) -> float | None:
    """Return the mean time of training on one PPO mini-batch in the window, in seconds.

    = time of the ranks' update_actor spans / mini-batches in them (attribute `mini_batches`,
    1 where it is absent); from the driver's spans where no rank reports.
    """
    ended = known.spans.lazy().filter(
        (pl.col("activity") == "update_actor") & pl.col("end_ns").is_not_null()
    )
    updates = within(ended, known.window, "start_ns", "end_ns")
    for role in ("trainer_rank", "trainer"):
        lanes = [lane.id for lane in known.topology.lanes if lane.role == role]
        ns, count = (
            updates.filter(pl.col("lane").is_in(lanes))
            .select(
                ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
                mini_batches=attr("mini_batches").cast(pl.Int64, strict=False).fill_null(1).sum(),
            )
            .collect()
            .row(0)
        )
        if count:
            return float(ns) / float(count) / 1e9
    return None


def _pool_ns(known: Evidence) -> dict[str, int]:
    """Return the device time of each side in the window: the ledger tiles it."""
    width = known.window[1] - known.window[0]
    return {name: width * len(known.devices(pool)) for pool, name in POOL_NAMES.items()}


def _totals(
    merged: pl.DataFrame, pool_ns: dict[str, int], mini_batch_s: float | None
) -> list[CauseTotal]:
    table = (
        merged.group_by("owner", "cause")
        .agg(
            bubbles=pl.len(),
            device_ns=pl.col("device_ns").sum(),
            wall_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            longest_ns=(pl.col("end_ns") - pl.col("start_ns")).max(),
        )
        .sort("owner", "cause")
    )
    totals = [
        CauseTotal(
            owner=row["owner"],
            cause=row["cause"],
            bubbles=row["bubbles"],
            device_seconds=row["device_ns"] / 1e9,
            share=row["device_ns"] / pool_ns[row["owner"]],
            mini_batches=row["wall_ns"] / 1e9 / mini_batch_s if mini_batch_s else None,
            longest_s=row["longest_ns"] / 1e9,
        )
        for row in table.iter_rows(named=True)
    ]
    # Pools differ in size: what is most of its pool comes first, as in the verdict.
    return sorted(totals, key=lambda total: total.share, reverse=True)


def _largest(
    idle: pl.DataFrame,
    merged: pl.DataFrame,
    known: Evidence,
    counters: pl.DataFrame,
    pool_ns: dict[str, int],
    mini_batch_s: float | None,
) -> list[Bubble]:
    ranked = merged.sort("device_ns", "start_ns", descending=[True, False])
    top = ranked.head(LISTED).sort("start_ns", "owner", "cause")
    evidence = gauges_at(top["start_ns"], counters)
    lanes = _lanes_in(top, idle, known.topology)
    return [
        Bubble(
            owner=row["owner"],
            cause=row["cause"],
            start_ns=row["start_ns"],
            end_ns=row["end_ns"],
            device_seconds=row["device_ns"] / 1e9,
            share=row["device_ns"] / pool_ns[row["owner"]],
            mini_batches=(row["end_ns"] - row["start_ns"]) / 1e9 / mini_batch_s
            if mini_batch_s
            else None,
            lanes=lanes[row["bubble"]],
            evidence=evidence[i],
        )
        for i, row in enumerate(top.iter_rows(named=True))
    ]


def _lanes_in(
    top: pl.DataFrame, idle: pl.DataFrame, topology: Topology
) -> dict[int, tuple[str, ...]]:
    """Return the lanes of the devices that idle in each of the bubbles `top`."""
    lanes = _lanes_of(topology)
    devices = (
        idle.filter(pl.col("bubble").is_in(top["bubble"].to_list()))
        .group_by("bubble")
        .agg(pl.col("device").unique())
    )
    return {
        bubble: tuple(sorted({lane for device in those for lane in lanes.get(device, ())}))
        for bubble, those in devices.iter_rows()
    }


def gauges_at(times: pl.Series, counters: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the last known value of each deciding gauge at each of `times` (sorted)."""
    found: list[dict[str, Any]] = [{} for _ in times]
    moments = pl.DataFrame({"ts_ns": times})
    for name in _DECIDING:
        series = counters.filter(pl.col("name") == name).select("ts_ns", "value").sort("ts_ns")
        values = moments.join_asof(series, on="ts_ns")["value"]
        for i, value in enumerate(values):
            if value is not None:
                found[i][name] = value
    return found


_DECIDING = (
    "queue_depth", "staleness_samples", "max_required_samples", "active_tasks", "pending_queue",
    "replay_pending", "replay_running", "replay_finished",
)  # fmt: skip


def _lanes_of(topology: Topology) -> dict[str, list[str]]:
    lanes: dict[str, list[str]] = {}
    for lane in topology.lanes:
        for device in devices_of(lane, topology):
            lanes.setdefault(device, []).append(lane.id)
    return lanes
