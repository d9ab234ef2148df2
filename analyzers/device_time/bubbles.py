"""Bubbles: when devices idle, whose they are, why, and how much they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.causes import Evidence
from rlinsight.analyzers.device_time.intervals import Ints, group_codes, union
from rlinsight.analyzers.device_time.pools import POOL_NAMES
from rlinsight.analyzers.device_time.states import STATES, cause_of, kind
from rlinsight.analyzers.tables import attr, devices_of
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
    """Totals by owner and cause, largest first, and the largest single bubbles."""

    totals: tuple[CauseTotal, ...]
    largest: tuple[Bubble, ...]
    mini_batch_s: float | None


def bubbles(segments: pl.DataFrame, known: Evidence, counters: pl.DataFrame) -> Bubbles:
    """Return the bubbles of the ledger's `segments`.

    Idle intervals of several devices of a pool that overlap and share a cause are one bubble;
    its device-seconds are the sum over the devices.
    """
    idle = idle_segments(segments, known.topology)
    merged = _merged(idle)
    mini_batch_s = mini_batch_seconds(known.spans, known.topology)
    pool_ns = _pool_ns(segments, known.topology)
    return Bubbles(
        totals=tuple(_totals(merged, pool_ns, mini_batch_s)),
        largest=tuple(_largest(merged, known, counters, pool_ns, mini_batch_s)),
        mini_batch_s=mini_batch_s,
    )


def mini_batch_seconds(spans: pl.DataFrame, topology: Topology) -> float | None:
    """Return the mean time of training on one PPO mini-batch, in seconds.

    = time of the ranks' update_actor spans / mini-batches in them (attribute `mini_batches`,
    1 where it is absent); from the driver's spans where no rank reports.
    """
    for roles in ({"trainer_rank"}, {"trainer"}):
        lanes = [lane.id for lane in topology.lanes if lane.role in roles]
        updates = spans.filter(
            pl.col("lane").is_in(lanes)
            & (pl.col("activity") == "update_actor")
            & pl.col("end_ns").is_not_null()
        ).select(
            ns=pl.col("end_ns") - pl.col("start_ns"),
            mini_batches=attr("mini_batches").cast(pl.Int64, strict=False).fill_null(1),
        )
        if not updates.is_empty():
            return float(updates["ns"].sum()) / float(updates["mini_batches"].sum()) / 1e9
    return None


def idle_segments(segments: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """Return the segments in which a device idles, with their `owner` and `cause`."""
    causes = {state: cause_of(state) for state in STATES if kind(state) == "bubble"}
    idle = segments.filter(pl.col("state").is_in(list(causes)))
    return idle.with_columns(
        owner=_mapped(idle["device"], _owners(topology)), cause=_mapped(idle["state"], causes)
    )


def _owners(topology: Topology) -> dict[str, str]:
    return {device.id: POOL_NAMES[device.pool] for device in topology.devices}


def _mapped(names: pl.Series, table: dict[str, str]) -> pl.Series:
    """Return `table` looked up by an enum column, as an enum: there may be millions of rows."""
    values = list(dict.fromkeys(table.values()))
    assert isinstance(names.dtype, pl.Enum)
    lookup = [values.index(table[name]) if name in table else 0 for name in names.dtype.categories]
    codes = np.asarray(lookup, np.int64)[names.to_physical().to_numpy()]
    return pl.Series(values, dtype=pl.Enum(values)).gather(pl.Series(codes, dtype=pl.Int64))


def _merged(idle: pl.DataFrame) -> pl.DataFrame:
    """Return (owner, cause, start_ns, end_ns, device_ns, devices), one row a bubble."""
    by = ["owner", "cause"]
    whole = union(idle.select(*by, "start_ns", "end_ns"), by)
    number = _containing(idle, whole, by)
    parts = idle.select(
        "device", ns=pl.col("end_ns") - pl.col("start_ns"), bubble=pl.Series(number)
    )
    sums = parts.group_by("bubble").agg(
        device_ns=pl.col("ns").sum(), devices=pl.col("device").unique()
    )
    joined = whole.with_row_index("bubble").with_columns(pl.col("bubble").cast(pl.Int64))
    return joined.join(sums, on="bubble", how="left").cast({"owner": pl.String, "cause": pl.String})


def _containing(idle: pl.DataFrame, whole: pl.DataFrame, by: list[str]) -> Ints:
    """Return, for each idle segment, the row of `whole` (sorted by group and start) it lies in."""
    codes, _ = group_codes(pl.concat([whole.select(by), idle.select(by)]), by)
    starts = np.concatenate([whole["start_ns"].to_numpy(), idle["start_ns"].to_numpy()])
    is_part = np.arange(len(codes)) >= len(whole)
    order = np.lexsort((is_part, starts, codes))
    number = np.empty(len(codes), np.int64)
    number[order] = np.cumsum(~is_part[order]) - 1
    rank = np.flatnonzero(~is_part[order])
    found: Ints = order[rank][number[len(whole) :]]
    return found


def _pool_ns(segments: pl.DataFrame, topology: Topology) -> dict[str, int]:
    owners = _owners(topology)
    per_device = segments.group_by("device").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    sums: dict[str, int] = {}
    for device, ns in per_device.cast({"device": pl.String}).iter_rows():
        sums[owners[device]] = sums.get(owners[device], 0) + ns
    return sums


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
        .sort("device_ns", "owner", "cause", descending=[True, False, False])
    )
    return [
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


def _largest(
    merged: pl.DataFrame,
    known: Evidence,
    counters: pl.DataFrame,
    pool_ns: dict[str, int],
    mini_batch_s: float | None,
) -> list[Bubble]:
    top = merged.sort("device_ns", descending=True).head(LISTED).sort("start_ns")
    evidence = gauges_at(top["start_ns"], counters)
    lanes = _lanes_of(known.topology)
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
            lanes=tuple(sorted({lane for d in row["devices"] for lane in lanes.get(d, ())})),
            evidence=evidence[i],
        )
        for i, row in enumerate(top.iter_rows(named=True))
    ]


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
