"""Slot utilization: how full the replicas are while they generate.

Problem: a replica with one long response left occupies its device exactly as a full one does,
so busy time alone hides the long tail. Definition (Little's law on the recorded requests):
slot utilization = integral of the requests in flight over the window / (capacity x window).

A value above 1 says that requests queue in front of the engine; nothing is clamped. Requests
in flight include those that wait inside the server, and validation.

Worked example: capacity 4, four requests over 0-5, one over 5-10, window 0-20: 25 request-
seconds of 80 slot-seconds are 0.3125; the replica generates half of the window, and half of
that nearly alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.intervals import time_order
from rlinsight.trace.topology import Lane, Topology

Window = tuple[int, int]

#: At most this share of the slots in use (and always a single request) is "nearly alone".
ALONE_SHARE = 0.125


@dataclass(frozen=True)
class LaneSlots:
    """One replica. Ratios are of the window, `nearly_alone_share` is of its generating time.

    `utilization` and `over_capacity_ratio` are None where the capacity is not known.
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


def slot_use(requests: pl.DataFrame, topology: Topology, window: Window) -> SlotUse:
    """Return how the slots of each declared replica were used within `window` (ns).

    A replica without requests was used 0 when others recorded theirs; where no request was
    recorded at all, nothing is known and the result is empty.
    """
    replicas = topology.replicas()
    if requests.is_empty() or window[0] >= window[1]:
        return SlotUse({}, ())
    levels = running_levels(requests, [lane.id for lane in replicas], window)
    limits = _alone_limits(replicas).with_columns(pl.col("lane").cast(levels.schema["lane"]))
    times = _times(levels.join(limits, on="lane", how="left"))
    rows = {row["lane"]: row for row in times.iter_rows(named=True)}
    width = window[1] - window[0]
    lanes = tuple(_lane_slots(lane, rows[lane.id], width) for lane in replicas)
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


def _alone_limits(replicas: Sequence[Lane]) -> pl.DataFrame:
    rows = [
        (lane.id, lane.capacity, max(1, int(ALONE_SHARE * (lane.capacity or 0))))
        for lane in replicas
    ]
    schema = {"lane": pl.String, "capacity": pl.Int64, "alone": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _times(levels: pl.DataFrame) -> pl.DataFrame:
    width, running = pl.col("end_ns") - pl.col("start_ns"), pl.col("running")
    return levels.group_by("lane").agg(
        request_ns=(width * running).sum(),
        peak=running.max(),
        generating_ns=width.filter(running > 0).sum(),
        alone_ns=width.filter((running > 0) & (running <= pl.col("alone"))).sum(),
        over_ns=width.filter(running > pl.col("capacity")).sum(),
    )


def _lane_slots(lane: Lane, row: dict[str, int], width: int) -> LaneSlots:
    mean = row["request_ns"] / width
    return LaneSlots(
        lane=lane.id,
        engine_kind=lane.engine_kind,
        capacity=lane.capacity,
        utilization=mean / lane.capacity if lane.capacity else None,
        mean_running=mean,
        peak_running=row["peak"],
        generating_ratio=row["generating_ns"] / width,
        nearly_alone_share=_ratio(row["alone_ns"], row["generating_ns"]),
        over_capacity_ratio=row["over_ns"] / width if lane.capacity else None,
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
