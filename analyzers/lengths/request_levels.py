"""How many requests each replica holds over time, and when work is left to schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.intervals import Ints, intersect, time_order, union

#: The counts of a replica, packed into one number so that one running sum is enough: requests
#: in flight, those of training, and whether some wait inside the engine.
_FIELD: Final = (1 << 21) - 1
_TRAINING: Final = 1 << 21
_WAITING: Final = 1 << 42

_INTERVALS = {"start_ns": pl.Int64, "end_ns": pl.Int64, "lane": pl.String}


@dataclass(frozen=True)
class Levels:
    """Stretches of constant state in which a replica holds a request, by lane and time.

    `lane` is the index of the lane, `busy` numbers the busy periods (from the first request
    in flight until none is), `submits` counts submissions up to the stretch. `running`,
    `training` (without validation) are how many requests, `waiting` above 0 tells that some
    wait inside the engine.
    """

    lane: Ints
    start: Ints
    end: Ints
    busy: Ints
    submits: Ints
    running: Ints
    training: Ints
    waiting: Ints


def request_levels(
    requests: pl.DataFrame, lanes: Sequence[str], counters: pl.DataFrame | None
) -> Levels:
    """Return the levels of `lanes`; a request without end lasts until any request's last time.

    Of `counters`, `waiting_requests` of the lanes is used.
    """
    lane, ts, change = _events(requests, lanes, _waiting(counters, lanes, horizon_ns(requests)))
    order = time_order(lane, ts)
    lane, ts, change = lane[order], ts[order], change[order]
    solid = np.flatnonzero((lane[1:] == lane[:-1]) & (ts[1:] > ts[:-1]))
    state = np.cumsum(change)[solid]
    submits = np.cumsum((change > 0) & (change & _FIELD > 0), dtype=np.int64)[solid]
    running, lane_of = state & _FIELD, lane[solid]
    after = (running[:-1] == 0) | (lane_of[1:] != lane_of[:-1])
    busy = np.cumsum(np.r_[True, after][: len(solid)])
    kept = np.flatnonzero(running)
    return Levels(
        lane=lane_of[kept],
        start=ts[solid[kept]],
        end=ts[solid[kept] + 1],
        busy=busy[kept],
        submits=submits[kept],
        running=running[kept],
        training=state[kept] // _TRAINING & _FIELD,
        waiting=state[kept] // _WAITING,
    )


def horizon_ns(requests: pl.DataFrame) -> int:
    """Return the last time that any request tells."""
    last = pl.max_horizontal(pl.col("submit_ns").max(), pl.col("end_ns").max())
    return int(requests.select(last).item())


def work_left(
    counters: pl.DataFrame | None, spans: pl.DataFrame | None, until_ns: int
) -> pl.DataFrame | None:
    """Return when prompts were left and could be handed out; None if that was not recorded.

    That is when the rollouter's `pending_queue` was above 0 and the rollouter not paused: a
    paused one hands nothing out. The last value holds until `until_ns`.
    """
    if counters is None:
        return None
    depth = counters.filter(pl.col("name") == "pending_queue")
    if depth.is_empty():
        return None
    left = _above_zero(depth, until_ns)
    if spans is None or left.is_empty():
        return left
    paused = spans.filter(
        (pl.col("activity") == "paused") & pl.col("lane").is_in(depth["lane"].unique().to_list())
    )
    ends = pl.col("end_ns").fill_null(until_ns)
    return _without(left, union(paused.select("start_ns", ends)))


def _events(
    requests: pl.DataFrame, lanes: Sequence[str], waiting: pl.DataFrame
) -> tuple[Ints, Ints, Ints]:
    """Return lane, time and change of the packed counts, of every start and every end."""
    index = {name: i for i, name in enumerate(lanes)}
    lane = pl.col("lane").replace_strict(index, return_dtype=pl.Int64)
    training = pl.col("validate").ne_missing(pl.lit(value=True)).cast(pl.Int64)
    held = requests.select(
        lane=lane,
        start="submit_ns",
        end=pl.col("end_ns").fill_null(horizon_ns(requests)),
        change=1 + _TRAINING * training,
    )
    queued = waiting.select(
        lane=lane, start="start_ns", end="end_ns", change=pl.lit(_WAITING, pl.Int64)
    )
    both = pl.concat([held, queued]).filter(pl.col("start") < pl.col("end"))
    where, change = both["lane"].to_numpy(), both["change"].to_numpy()
    return (
        np.concatenate([where, where]),
        np.concatenate([both["start"], both["end"]]),
        np.concatenate([change, -change]),
    )


def _waiting(counters: pl.DataFrame | None, lanes: Sequence[str], until_ns: int) -> pl.DataFrame:
    """Return when requests waited inside the engine of each replica."""
    if counters is None:
        return pl.DataFrame(schema=_INTERVALS)
    of_engines = (pl.col("name") == "waiting_requests") & pl.col("lane").is_in(list(lanes))
    return _above_zero(counters.filter(of_engines), until_ns)


def _above_zero(gauge: pl.DataFrame, until_ns: int) -> pl.DataFrame:
    """Return when a gauge, which holds until its next value, is above 0: disjoint, by lane."""
    if gauge.is_empty():
        return pl.DataFrame(schema=_INTERVALS)
    names = gauge["lane"].unique().sort().to_list()
    lane = _codes(gauge, names)
    order = time_order(lane, gauge["ts_ns"].to_numpy())
    lane, ts = lane[order], gauge["ts_ns"].to_numpy()[order]
    above = gauge["value"].to_numpy()[order] > 0
    first = np.r_[True, lane[1:] != lane[:-1]]
    changed = np.flatnonzero(first | np.r_[False, above[1:] != above[:-1]])
    lane, ts, above = lane[changed], ts[changed], above[changed]
    same = np.r_[lane[1:] == lane[:-1], False]
    ends = np.where(same, np.r_[ts[1:], until_ns], until_ns)
    kept = above & (ts < ends)
    place = pl.Series(lane[kept])
    lanes = pl.Series("lane", names, dtype=pl.String).gather(place)
    return pl.DataFrame({"start_ns": ts[kept], "end_ns": ends[kept], "lane": lanes})


def _codes(frame: pl.DataFrame, lanes: Sequence[str]) -> Ints:
    if frame.is_empty():
        return np.zeros(0, np.int64)
    index = {name: i for i, name in enumerate(lanes)}
    codes: Ints = frame["lane"].replace_strict(index, return_dtype=pl.Int64).to_numpy()
    return codes


def _without(left: pl.DataFrame, paused: pl.DataFrame) -> pl.DataFrame:
    """Cut the sorted, disjoint intervals `paused` out of `left`."""
    first, last = left["start_ns"].min(), left["end_ns"].max()
    gaps = pl.DataFrame(
        {
            "start_ns": pl.concat([pl.Series([first], dtype=pl.Int64), paused["end_ns"]]),
            "end_ns": pl.concat([paused["start_ns"], pl.Series([last], dtype=pl.Int64)]),
        }
    )
    return intersect(left, gaps)
