"""The dead: processes that fell silent, and engines whose requests verl waits for forever."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from rlinsight.analyzers.health.alarms import FLOOR_S, Alarm, limit_s
from rlinsight.trace.process import Process
from rlinsight.trace.topology import Topology

#: A recorder writes its file at least twice a second.
SILENT_S = 30.0
#: Clocks of nodes differ, so a sign of life on another node counts only after this long.
SILENT_NODE_S = 300.0
#: Requests elsewhere that must have been answered since, so that a common pause is no death.
MIN_ANSWERED = 3


def dead_processes(processes: Iterable[Process], now_ns: int) -> list[Alarm]:
    """Return recorders without end that fell silent while others of the run went on.

    Others are the recorders of the same node, and with more patience those of other nodes.
    When all fell silent at once the run was stopped, not one process.

    Worked example: of two recorders of a node one writes until 120 s, the other, without an
    end, until 40 s: it is silent for 80 s.
    """
    known = list(processes)
    latest = {
        node: max(max(p.flushed_ns, p.ended_ns or 0) for p in known if p.node == node)
        for node in {process.node for process in known}
    }
    alarms = []
    for process in (p for p in known if p.ended_ns is None):
        here = (min(latest[process.node], now_ns) - process.flushed_ns) / 1e9
        anywhere = (min(max(latest.values()), now_ns) - process.flushed_ns) / 1e9
        if here > SILENT_S:
            alarms.append(_silent(process, here, SILENT_S))
        elif anywhere > SILENT_NODE_S:
            alarms.append(_silent(process, anywhere, SILENT_NODE_S))
    return alarms


def _silent(process: Process, silent: float, limit: float) -> Alarm:
    lanes = ", ".join(lane.id for lane in process.topology.lanes) or "no lane"
    told = f"process {process.pid} on {process.node} ({lanes}) has not been heard of"
    return Alarm(
        "dead_process",
        lanes,
        process.flushed_ns,
        silent,
        limit,
        f"{told} for {silent:.0f} s while others went on",
        {"node": process.node, "pid": process.pid},
    )


def dead_engines(
    requests: pl.DataFrame, topology: Topology, now_ns: int, floor_s: float = FLOOR_S
) -> list[Alarm]:
    """Return the replicas whose open requests get no answer while other replicas answer theirs.

    A replica is silent since its last answer, or since its oldest open request where that is
    later. It counts as dead when this silence exceeds max(6 x the 99th percentile of all
    requests' durations, the floor), and at least three requests of other replicas, submitted
    since then, were answered.

    Worked example: replica0 answers until 100 s and holds requests of 90 s and later open;
    replica1 goes on, requests take 10 s; at 1000 s replica0 is silent for 900 s.
    """
    replicas = {lane.id for lane in topology.replicas()}
    mine = requests.filter(pl.col("lane").is_in(list(replicas)))
    closed = mine.filter(pl.col("end_ns").is_not_null())
    usual = (closed["end_ns"] - closed["submit_ns"]).quantile(0.99)
    limit = limit_s(usual / 1e9 if usual is not None else None, floor_s)
    silent = (
        mine.group_by("lane")
        .agg(
            open=pl.col("end_ns").is_null().sum(),
            answered=pl.col("end_ns").max(),
            oldest=pl.col("submit_ns").filter(pl.col("end_ns").is_null()).min(),
        )
        .filter(pl.col("open") > 0)
        .with_columns(since=pl.max_horizontal("answered", "oldest"))
        .sort("lane")
    )
    return [
        _alarm(row["lane"], row["since"], row["open"], answered, now_ns, limit)
        for row in silent.iter_rows(named=True)
        if (now_ns - row["since"]) / 1e9 > limit
        and (answered := _answered_elsewhere(closed, row["lane"], row["since"])) >= MIN_ANSWERED
    ]


def _answered_elsewhere(closed: pl.DataFrame, lane: str, since: int) -> int:
    return closed.filter((pl.col("lane") != lane) & (pl.col("submit_ns") >= since)).height


def _alarm(lane: str, since: int, count: int, answered: int, now_ns: int, limit: float) -> Alarm:
    lasted = (now_ns - since) / 1e9
    told = f"`{lane}` holds {count} requests open and has answered none for {lasted:.0f} s"
    return Alarm(
        "dead_engine",
        lane,
        since,
        lasted,
        limit,
        f"{told}, while other replicas answered {answered}",
        {"open_requests": count, "answered_elsewhere": answered},
    )
