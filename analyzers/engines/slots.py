"""Slot utilization: how full the replicas are while they generate.

Problem: a replica with one long response left occupies its device exactly as a full one does,
so busy time alone hides the long tail. Definition: slot utilization = integral of the running
requests over the window / (capacity x window), validation included.

What runs is what the engine's own counter `running_requests` says, over the part of the window
that it covers: before its first row nothing is known. Where it was not recorded,
requests in flight stand for it (Little's law); they include those that wait inside the server,
so a value above 1 then says that requests queue in front of the engine. Nothing is clamped.

Worked example: capacity 4, four requests over 0-5, one over 5-10, window 0-20: 25 request-
seconds of 80 slot-seconds are 0.3125; the replica generates half of the window, and half of
that nearly alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.intervals import time_order
from rlinsight.trace.topology import Lane, Topology

Window = tuple[int, int]
Evidence = Literal["engine counter", "requests in flight"]

#: At most this share of the slots in use (and always a single request) is "nearly alone".
ALONE_SHARE = 0.125


@dataclass(frozen=True)
class LaneSlots:
    """One replica. Ratios are of the window, `nearly_alone_share` is of its generating time.

    `utilization` and `over_capacity_ratio` are None where the capacity is not known; the latter
    is the time with more requests in flight than slots. `evidence` is what running requests
    were counted from.
    """

    lane: str
    engine_kind: str | None
    capacity: int | None
    utilization: float | None
    mean_running: float
    peak_running: int
    generating_ratio: float
    nearly_alone_share: float | None
    over_capacity_ratio: float | None
    evidence: Evidence


@dataclass(frozen=True)
class KindSlots:
    """The replicas of one engine kind together, weighted by their slots."""

    replicas: int
    utilization: float | None
    generating_ratio: float
    nearly_alone_share: float | None


@dataclass(frozen=True)
class SlotUse:
    """Slot utilization per engine kind and per replica.

    Hybrid and standalone replicas are never added up: a hybrid one has no slots while its
    devices train, and its utilization is still of the whole window.
    """

    by_kind: dict[str, KindSlots]
    lanes: tuple[LaneSlots, ...]


def slot_use(
    requests: pl.DataFrame, counters: pl.DataFrame, topology: Topology, window: Window
) -> SlotUse:
    """Return how the slots of each declared replica were used within `window` (ns).

    A replica without requests was used 0 when others recorded theirs; where no request was
    recorded at all, nothing is known and the result is empty.
    """
    replicas = topology.replicas()
    if requests.is_empty() or window[0] >= window[1]:
        return SlotUse({}, ())
    in_flight = running_levels(requests, [lane.id for lane in replicas], window)
    limits = _alone_limits(replicas)
    rows, counted = (
        _times(levels, limits) for levels in (in_flight, counted_levels(counters, window))
    )
    width = window[1] - window[0]
    lanes = tuple(
        _lane_slots(lane, rows[lane.id], counted.get(lane.id), width) for lane in replicas
    )
    kinds = dict.fromkeys(lane.engine_kind or "unknown" for lane in lanes)
    return SlotUse({kind: _kind_slots(kind, lanes) for kind in kinds}, lanes)


def running_levels(requests: pl.DataFrame, lanes: Sequence[str], window: Window) -> pl.DataFrame:
    """Return the requests in flight over time: (lane, start_ns, end_ns, running), tiling `window`.

    An open request is in flight to the window's end. `lane` is an Enum of `lanes`, since names
    are compared a few million times; neighbouring stretches may have the same count.
    """
    start, end = window
    names = pl.Enum(list(lanes))
    inside = requests.select(
        pl.col("lane").cast(names, strict=False),
        start_ns=pl.col("submit_ns").clip(lower_bound=start),
        end_ns=pl.col("end_ns").fill_null(end).clip(upper_bound=end),
    ).filter((pl.col("start_ns") < pl.col("end_ns")) & pl.col("lane").is_not_null())
    number = inside["lane"].to_physical().to_numpy()
    lane = np.concatenate([number, number, np.repeat(np.arange(len(lanes)), 2)])
    edges = np.tile(np.asarray(window, np.int64), len(lanes))
    ts = np.concatenate([inside["start_ns"], inside["end_ns"], edges])
    change = np.repeat([1, -1, 0], [len(number), len(number), len(edges)])
    order = time_order(lane, ts)
    lane, ts = lane[order], ts[order]
    # Every lane ends where it began, at 0, so one running sum serves them all.
    running = np.cumsum(change[order])
    kept = np.flatnonzero((lane[1:] == lane[:-1]) & (ts[1:] > ts[:-1]))
    place = pl.Series(lane[kept].astype(np.uint32))
    columns = {"start_ns": ts[kept], "end_ns": ts[kept + 1], "running": running[kept]}
    return pl.DataFrame({"lane": pl.Series(lanes, dtype=names).gather(place), **columns})


def counted_levels(counters: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return the engines' own running requests over time: (lane, start_ns, end_ns, running).

    From the counter `running_requests`, which holds from one row to the next; what a lane's
    first row in the window leaves before it is unknown and left out.
    """
    start, end = window
    rows = counters.filter((pl.col("name") == "running_requests") & (pl.col("ts_ns") < end))
    return (
        rows.sort("ts_ns", maintain_order=True)
        .select(
            "lane",
            start_ns=pl.col("ts_ns").clip(lower_bound=start),
            end_ns=pl.col("ts_ns").shift(-1).over("lane").fill_null(end).clip(lower_bound=start),
            running=pl.col("value").cast(pl.Int64),
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
    )


def _alone_limits(replicas: Sequence[Lane]) -> pl.DataFrame:
    rows = [
        (lane.id, lane.capacity, max(1, int(ALONE_SHARE * (lane.capacity or 0))))
        for lane in replicas
    ]
    schema = {"lane": pl.String, "capacity": pl.Int64, "alone": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _times(levels: pl.DataFrame, limits: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Return the request-time and the times of each lane by how full it was, in ns."""
    width, running = pl.col("end_ns") - pl.col("start_ns"), pl.col("running")
    known = limits.with_columns(pl.col("lane").cast(levels.schema["lane"], strict=False))
    times = (
        levels.join(known, on="lane", how="left")
        .group_by("lane")
        .agg(
            covered_ns=width.sum(),
            request_ns=(width * running).sum(),
            peak=running.max(),
            generating_ns=width.filter(running > 0).sum(),
            alone_ns=width.filter((running > 0) & (running <= pl.col("alone"))).sum(),
            over_ns=width.filter(running > pl.col("capacity")).sum(),
        )
    )
    return {row["lane"]: row for row in times.iter_rows(named=True)}


def _lane_slots(
    lane: Lane, in_flight: dict[str, int], counted: dict[str, int] | None, width: int
) -> LaneSlots:
    row = counted or in_flight
    mean = row["request_ns"] / row["covered_ns"]
    return LaneSlots(
        lane=lane.id,
        engine_kind=lane.engine_kind,
        capacity=lane.capacity,
        utilization=mean / lane.capacity if lane.capacity else None,
        mean_running=mean,
        peak_running=row["peak"],
        generating_ratio=in_flight["generating_ns"] / width,
        nearly_alone_share=_ratio(row["alone_ns"], row["generating_ns"]),
        over_capacity_ratio=in_flight["over_ns"] / width if lane.capacity else None,
        evidence="engine counter" if counted else "requests in flight",
    )


def _kind_slots(kind: str, lanes: Sequence[LaneSlots]) -> KindSlots:
    mine = [lane for lane in lanes if (lane.engine_kind or "unknown") == kind]
    capacities = [lane.capacity for lane in mine if lane.capacity]
    generating = sum(lane.generating_ratio for lane in mine)
    alone = sum(lane.generating_ratio * (lane.nearly_alone_share or 0.0) for lane in mine)
    running = sum(lane.mean_running for lane in mine)
    return KindSlots(
        replicas=len(mine),
        utilization=running / sum(capacities) if len(capacities) == len(mine) else None,
        generating_ratio=generating / len(mine),
        nearly_alone_share=_ratio(alone, generating),
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
