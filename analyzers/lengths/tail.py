"""The long tail: devices that run nearly empty because only the last responses are missing.

Problem: generation of a response is sequential, so when nothing is left to schedule, a
replica keeps its devices until its longest response ends, with ever fewer requests beside it.

    tail cost = sum over time in the tail of (1 - running / full) x devices of the replica

A replica is busy from its first request in flight until none is. `full` is its capacity, or
the most requests it ran in this busy period if that is fewer: slots that nobody ever filled
are a matter of configuration, not of the tail. The tail is the time after it was first full in
which it is not full and nothing is left to schedule. What is left is read from the counters
where they were recorded: `pending_queue` above 0 while the rollouter is not paused (a paused
one hands nothing out). Without that counter, nothing is left after the last submission of the
busy period. Requests that wait inside the engine (`waiting_requests` above 0) are always left.
Time in which only validation requests run does not count.

Worked example: capacity 4, requests 0-4, 0-6, 0-10 and 0-20 s, nothing submitted later: 3 of 4
for 2 s, 2 of 4 for 4 s, 1 of 4 for 10 s: tail 16 s, cost 0.5 + 2 + 7.5 = 10 device-seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.device_time.intervals import union
from rlinsight.analyzers.device_time.per_window import covered_before
from rlinsight.analyzers.lengths.request_levels import Levels, horizon_ns, request_levels, work_left
from rlinsight.trace.topology import Topology

Window = tuple[int, int]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Evidence = Literal["pending counter", "last submission"]


@dataclass(frozen=True)
class ReplicaTail:
    """The tails of one replica within the window, in device-seconds.

    `cost_device_seconds` weights with the empty share, `tail_device_seconds` does not,
    `busy_device_seconds` is all time with a request of training in flight. A replica whose
    devices were not declared counts as one device.
    """

    lane: str
    tails: int
    cost_device_seconds: float
    tail_device_seconds: float
    busy_device_seconds: float


@dataclass(frozen=True)
class TailCost:
    """The tails of all replicas; `share_of_busy` is the cost per busy device-second.

    `evidence` tells what decided that nothing was left to schedule.
    """

    cost_device_seconds: float
    tail_device_seconds: float
    busy_device_seconds: float
    share_of_busy: float | None
    tails: int
    evidence: Evidence
    replicas: tuple[ReplicaTail, ...]


def tail_cost(
    requests: pl.DataFrame,
    *,
    topology: Topology | None = None,
    counters: pl.DataFrame | None = None,
    spans: pl.DataFrame | None = None,
    window: Window | None = None,
) -> TailCost | None:
    """Return the tail cost within `window` (epoch ns); None where no request was recorded.

    `requests`, `counters` and `spans` must be those of the whole trace: whether a replica was
    full is decided over the whole busy period. A request without end is in flight until the
    last time that any request tells.
    """
    lanes = requests["lane"].unique().sort().to_list()
    if not lanes:
        return None
    levels = request_levels(requests, lanes, counters)
    left = work_left(counters, spans, horizon_ns(requests))
    full = _full(levels, lanes, topology)
    tail = _tail(levels, full, by_submission=left is None)
    start, end = levels.start, levels.end
    if window is not None:
        start, end = np.clip(start, *window), np.clip(end, *window)
    training = levels.training > 0
    busy = pl.DataFrame({"lane": levels.lane[training], "busy_ns": (end - start)[training]})
    place = np.flatnonzero(tail)
    start, end = start[place], end[place]
    idle = end - start if left is None else end - start - _covered(left, start, end)
    tails = pl.DataFrame(
        {
            "lane": levels.lane[place],
            "busy": levels.busy[place],
            "tail_ns": idle,
            "cost_ns": idle * (1 - levels.running[place] / full[place]),
        }
    )
    evidence: Evidence = "last submission" if left is None else "pending counter"
    return _totals(_per_lane(busy, tails), lanes, topology, evidence)


def _full(levels: Levels, lanes: Sequence[str], topology: Topology | None) -> Ints:
    """Return for each stretch how many requests make its replica full."""
    if not len(levels.busy):
        return levels.running
    firsts, place = _groups(levels.busy)
    peak = np.maximum.reduceat(levels.running, firsts)[place]
    declared = [topology.lane(lane) if topology else None for lane in lanes]
    unlimited = np.iinfo(np.int64).max
    capacity = np.array([(lane.capacity if lane else None) or unlimited for lane in declared])
    full: Ints = np.minimum(peak, capacity[levels.lane])
    return full


def _groups(ids: Ints) -> tuple[Ints, Ints]:
    """Return where each run of equal ids begins, and the number of the run of each element."""
    begins = np.r_[True, ids[1:] != ids[:-1]]
    return np.flatnonzero(begins), np.cumsum(begins) - 1


def _tail(levels: Levels, full: Ints, *, by_submission: bool) -> Bools:
    """Return which stretches are tail, as far as that holds for a whole stretch."""
    running, size = levels.running, len(levels.running)
    if size == 0:
        return np.zeros(0, np.bool_)
    firsts, place = _groups(levels.busy)
    when_full = np.where(running >= full, np.arange(size), size)
    was_full = np.arange(size) > np.minimum.reduceat(when_full, firsts)[place]
    tail: Bools = was_full & (running < full) & (levels.training > 0) & (levels.waiting == 0)
    if by_submission:
        tail &= levels.submits == np.maximum.reduceat(levels.submits, firsts)[place]
    return tail


def _covered(left: pl.DataFrame, start: Ints, end: Ints) -> Ints:
    merged = union(left.select("start_ns", "end_ns"))
    covered: Ints = covered_before(merged, end) - covered_before(merged, start)
    return covered


def _per_lane(busy: pl.DataFrame, tails: pl.DataFrame) -> pl.DataFrame:
    """Return busy_ns, tail_ns, cost_ns and the number of tails of each lane that was busy."""
    per_busy = tails.group_by("lane", "busy").agg(pl.col("tail_ns", "cost_ns").sum())
    per_lane = per_busy.group_by("lane").agg(
        pl.col("tail_ns", "cost_ns").sum(), tails=(pl.col("tail_ns") > 0).sum()
    )
    all_busy = busy.group_by("lane").agg(pl.col("busy_ns").sum()).sort("lane")
    return all_busy.join(per_lane, on="lane", how="left", maintain_order="left").fill_null(0)


def _totals(
    per_lane: pl.DataFrame, lanes: Sequence[str], topology: Topology | None, evidence: Evidence
) -> TailCost:
    replicas = tuple(
        _replica(lanes[row["lane"]], row, topology) for row in per_lane.iter_rows(named=True)
    )
    cost = sum(replica.cost_device_seconds for replica in replicas)
    busy = sum(replica.busy_device_seconds for replica in replicas)
    return TailCost(
        cost_device_seconds=cost,
        tail_device_seconds=sum(replica.tail_device_seconds for replica in replicas),
        busy_device_seconds=busy,
        share_of_busy=cost / busy if busy else None,
        tails=sum(replica.tails for replica in replicas),
        evidence=evidence,
        replicas=replicas,
    )


def _replica(name: str, row: dict[str, float], topology: Topology | None) -> ReplicaTail:
    lane = topology.lane(name) if topology else None
    devices = max(1, len(lane.devices)) if lane else 1
    return ReplicaTail(
        lane=name,
        tails=int(row["tails"]),
        cost_device_seconds=row["cost_ns"] / 1e9 * devices,
        tail_device_seconds=row["tail_ns"] / 1e9 * devices,
        busy_device_seconds=row["busy_ns"] / 1e9 * devices,
    )
