"""Is the work spread evenly over replicas, and do all of them hold the same version?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.intervals import total_ns, union
from rlinsight.analyzers.engines.slots import running_levels
from rlinsight.trace.topology import Topology

Window = tuple[int, int]
Spread = Literal["even", "skewed", "one_replica", "serialized"]

#: One replica with this share of the request time carries the requests.
CARRIES = 0.8
#: With no more than this many requests in flight over all replicas, the client is the limit,
SERIAL = 1.5
#: unless fewer than this share of them were sent while at most one other was: that is a tail.
ALONE = 0.5


@dataclass(frozen=True)
class RequestSpread:
    """How request time is spread over the replicas of one engine kind.

    `shares` are of the request-seconds, `routed` of the number of requests: a slow replica has
    more of the one and not of the other, which is no matter of routing. `mean_in_flight` is
    over the time in which any of these replicas has a request: while they sleep, nobody sends.
    `drift` is the busiest replica's share of the time in the last third of the window minus its
    share in the first (routing that sticks shows as growth).
    """

    verdict: Spread
    shares: dict[str, float]
    routed: dict[str, float]
    busiest: str
    requests: int
    mean_in_flight: float
    drift: float | None


@dataclass(frozen=True)
class ReplicaVersions:
    """A replica's parameter version beside its peers'.

    `mean_lag_s` and `max_lag_s` are times behind the first replica to acknowledge a version,
    `behind_s` is how long it has lacked the first one that a peer has and it has not; `skipped`
    are versions that peers acknowledged and this one never did, between its first one and its last
    one: a replica that is added later skips none, and the latest may still come.
    """

    lane: str
    last_version: int
    versions_behind: int
    behind_s: float | None
    mean_lag_s: float
    max_lag_s: float
    skipped: tuple[int, ...]
    lagging: bool


def request_spread(
    requests: pl.DataFrame, topology: Topology, window: Window, engine_kind: str = "standalone"
) -> RequestSpread | None:
    """Return how the requests of `window` were spread over the replicas of one engine kind.

    None with fewer than two such replicas, or without requests on them. `one_replica` and
    `skewed` ask that the busiest replica has so large a share of the time and of the requests.
    `serialized`: about one request in flight over all replicas while there is any, and most were
    sent while at most one other was in flight: the client sends them one after the other.

    Worked examples: two replicas over 0-10, one with requests throughout, 4 at a time, the
    other with none: shares 1 and 0, `one_replica`. Each with 16 requests over 0-4 of 0-100: 32 in
    flight, `even`.
    """
    lanes = [lane.id for lane in topology.replicas() if lane.engine_kind == engine_kind]
    if len(lanes) < 2 or window[0] >= window[1]:
        return None
    mine = requests.filter(pl.col("lane").is_in(lanes) & (pl.col("submit_ns") < window[1]))
    levels = running_levels(mine, lanes, window)
    areas = _areas(levels)
    total = sum(areas.values())
    if not total:
        return None
    shares = {lane: areas[lane] / total for lane in lanes}
    busiest = max(shares, key=lambda lane: shares[lane])
    counts = dict(mine.group_by("lane").len().iter_rows())
    routed = {lane: counts.get(lane, 0) / len(mine) for lane in lanes}
    in_flight = total / total_ns(union(levels.filter(pl.col("running") > 0)))
    serial = in_flight <= SERIAL and _sent_alone(mine) >= ALONE
    return RequestSpread(
        verdict=_spread_verdict(min(shares[busiest], routed[busiest]), len(lanes), serial),
        shares=shares,
        routed=routed,
        busiest=busiest,
        requests=len(mine),
        mean_in_flight=in_flight,
        drift=_drift(levels, window, busiest),
    )


def _spread_verdict(share: float, replicas: int, serial: bool) -> Spread:
    if share >= CARRIES:
        return "one_replica"
    if serial:
        return "serialized"
    return "skewed" if share >= 1.5 / replicas else "even"


def _sent_alone(requests: pl.DataFrame) -> float:
    """Return the share of the requests that were sent while at most one other was in flight."""
    sent = np.sort(requests["submit_ns"].to_numpy())
    ended = np.sort(requests["end_ns"].drop_nulls().to_numpy())
    before = np.arange(len(sent)) - np.searchsorted(ended, sent, side="right")
    return float((before <= 1).mean())


def _areas(levels: pl.DataFrame) -> dict[str, int]:
    area = (pl.col("running") * (pl.col("end_ns") - pl.col("start_ns"))).sum()
    return dict(levels.group_by("lane").agg(area).iter_rows())


def _drift(levels: pl.DataFrame, window: Window, busiest: str) -> float | None:
    third = (window[1] - window[0]) // 3
    shares = []
    for start, end in ((window[0], window[0] + third), (window[1] - third, window[1])):
        part = levels.with_columns(
            pl.col("start_ns").clip(lower_bound=start), pl.col("end_ns").clip(upper_bound=end)
        ).filter(pl.col("start_ns") < pl.col("end_ns"))
        areas = _areas(part)
        total = sum(areas.values())
        shares.append(areas[busiest] / total if total else None)
    early, late = shares
    return None if early is None or late is None else late - early


def replica_versions(
    markers: pl.DataFrame, topology: Topology, end_ns: int, engine_kind: str | None = "standalone"
) -> tuple[ReplicaVersions, ...]:
    """Return each replica's version beside its peers', from `param_sync` on replica lanes.

    A replica lags when its last version is older than its peers', for longer than three
    times the usual time between the first and the last replica of a sync (at least 1 s).

    Worked example: replica0 acknowledges 1, 2, 3 at 10, 20, 30 s and replica1 only 1 at 11 s;
    at 40 s replica1 is two versions behind, since 20 s.
    """
    lanes = [r.id for r in topology.replicas() if engine_kind in (None, r.engine_kind)]
    acks = (
        markers.filter(
            (pl.col("kind") == "param_sync")
            & pl.col("param_version").is_not_null()
            & pl.col("lane").is_in(lanes)
        )
        .group_by("lane", "param_version")
        .agg(pl.col("ts_ns").min())
        .with_columns(first_ns=pl.col("ts_ns").min().over("param_version"))
    )
    if acks["lane"].n_unique() < 2:
        return ()
    lag = pl.col("ts_ns") - pl.col("first_ns")
    widths = acks.group_by("param_version").agg(lag.max(), n=pl.len()).filter(pl.col("n") > 1)
    typical = widths["ts_ns"].median()
    patience_ns = max(1e9, 3 * typical) if isinstance(typical, (int, float)) else 1e9
    first = dict(acks.select("param_version", "first_ns").unique().sort("param_version").rows())
    return tuple(
        _replica(mine, first, end_ns, patience_ns)
        for mine in acks.sort("lane", "param_version").partition_by("lane", maintain_order=True)
    )


def _replica(
    mine: pl.DataFrame, first: dict[int, int], end_ns: int, patience_ns: float
) -> ReplicaVersions:
    own = mine["param_version"].to_list()
    known = set(own)
    newer = [version for version in first if version > own[-1]]
    lags = ((mine["ts_ns"] - mine["first_ns"]) / 1e9).to_list()
    behind_ns = end_ns - first[newer[0]] if newer else None
    return ReplicaVersions(
        lane=mine["lane"][0],
        last_version=own[-1],
        versions_behind=len(newer),
        behind_s=None if behind_ns is None else behind_ns / 1e9,
        mean_lag_s=sum(lags) / len(lags),
        max_lag_s=max(lags),
        skipped=tuple(v for v in first if own[0] < v < own[-1] and v not in known),
        lagging=behind_ns is not None and behind_ns > patience_ns,
    )
