"""What was recorded of each weight sync: the driver's stages, the replicas' gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rlinsight.analyzers.tables import attr
from rlinsight.trace.topology import Topology

TRANSFER = ("build_group", "transfer")
MEMORY = ("release_kv_cache", "resume_kv_cache", "sleep", "wake")
_RECORDED = ("abort", *TRANSFER, *MEMORY, "resume")
_WHOLE = ("weight_sync", "other:weight_sync.total")
_PREFIX = "other:weight_sync."


@dataclass(frozen=True)
class OnReplicas:
    """What one sync did to the replicas: longest drain and stall in seconds, requests aborted."""

    drain_s: float | None = None
    stall_s: float | None = None
    aborted: int | None = None


def on_replicas(
    rows: list[dict[str, Any]], spans: pl.DataFrame, markers: pl.DataFrame, topology: Topology
) -> dict[int, OnReplicas]:
    """Return, by the start of each of the syncs `rows`, what it did to the replicas.

    A gate that closed, or an engine that was emptied, between a sync's start and end is part
    of it.
    """
    bounds = pl.DataFrame(
        [(row["start_ns"], row["end_ns"]) for row in rows],
        schema={"sync": pl.Int64, "until": pl.Int64},
        orient="row",
    ).sort("sync")
    mine = pl.col("lane").is_in([lane.id for lane in topology.replicas()])
    paused = spans.filter(mine & (pl.col("activity") == "paused"))
    lane = pl.col("lane").cast(pl.String)
    gates = _within(paused.select(lane, "end_ns", ts_ns="start_ns"), bounds)
    aborts = markers.filter(mine & (pl.col("kind") == "abort"))
    aborted = attr("aborted_requests").cast(pl.Int64, strict=False)
    emptied = _within(aborts.select("lane", "ts_ns", aborted=aborted), bounds)
    drained = gates.join(emptied, on=["sync", "lane"]).with_columns(
        ns=pl.col("ts_ns_right") - pl.col("ts_ns")
    )
    drains = _longest_s(drained.filter(pl.col("ns") >= 0))
    stalls = _longest_s(gates.with_columns(ns=pl.col("end_ns") - pl.col("ts_ns")))
    counts = emptied.drop_nulls("aborted").group_by("sync").agg(pl.col("aborted").sum())
    requests = dict(counts.select("sync", "aborted").iter_rows())
    return {
        start: OnReplicas(drains.get(start), stalls.get(start), requests.get(start))
        for start in bounds["sync"]
    }


def _within(events: pl.DataFrame, bounds: pl.DataFrame) -> pl.DataFrame:
    """Return the events that lie within a sync, with its start as `sync`."""
    placed = events.sort("ts_ns").join_asof(
        bounds, left_on="ts_ns", right_on="sync", coalesce=False
    )
    return placed.filter(pl.col("ts_ns") <= pl.col("until"))


def _longest_s(frame: pl.DataFrame) -> dict[int, float]:
    longest = frame.drop_nulls("ns").group_by("sync").agg(pl.col("ns").max() / 1e9)
    return dict(longest.select("sync", "ns").iter_rows())


def recorded_syncs(
    spans: pl.DataFrame, markers: pl.DataFrame, topology: Topology
) -> list[dict[str, Any]]:
    """Return each sync in order: start_ns, end_ns, param_version, backend, stages (seconds)."""
    return _from_spans(spans, topology) or _from_markers(markers, topology)


def _drivers(topology: Topology) -> list[str]:
    return [lane.id for lane in topology.lanes if lane.role == "trainer"] or ["trainer"]


def _from_spans(spans: pl.DataFrame, topology: Topology) -> list[dict[str, Any]]:
    mine = spans.filter(
        pl.col("lane").is_in(_drivers(topology)) & pl.col("end_ns").is_not_null()
    ).sort("start_ns")
    whole = _outermost(
        mine.filter(pl.col("activity").is_in(_WHOLE)).select(
            "start_ns", "end_ns", "param_version", backend=attr("backend")
        )
    )
    stages = mine.filter(pl.col("activity").is_in([_PREFIX + stage for stage in _RECORDED]))
    bounds = whole.select(sync="start_ns", until="end_ns")
    placed = stages.join_asof(bounds, left_on="start_ns", right_on="sync", coalesce=False).filter(
        pl.col("start_ns") < pl.col("until")
    )
    sums = placed.group_by(
        "sync", stage=pl.col("activity").cast(pl.String).str.strip_prefix(_PREFIX)
    ).agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    spent: dict[int, dict[str, float]] = {}
    for start, stage, ns in sums.iter_rows():
        spent.setdefault(start, {})[stage] = ns / 1e9
    return [{**row, "stages": spent.get(row["start_ns"], {})} for row in whole.to_dicts()]


def _outermost(whole: pl.DataFrame) -> pl.DataFrame:
    """Keep of nested syncs (verl's timer around the manager's call) the outer, with both's facts.

    The inner one is the manager's own and knows the backend; a sync of two managers in one
    timer is one sync.
    """
    reach = pl.col("end_ns").cum_max().shift(1)
    island = (reach.is_null() | (pl.col("start_ns") >= reach)).cum_sum().alias("island")
    return (
        whole.sort("start_ns", "end_ns", descending=[False, True])
        .with_columns(island)
        .group_by("island", maintain_order=True)
        .agg(
            pl.col("start_ns").first(),
            pl.col("end_ns").max(),
            pl.col("param_version").max(),
            pl.col("backend").drop_nulls().first(),
        )
        .drop("island")
    )


def _from_markers(markers: pl.DataFrame, topology: Topology) -> list[dict[str, Any]]:
    names = [f"{stage}_s" for stage in _RECORDED]
    table = markers.filter(
        (pl.col("kind") == "param_sync") & pl.col("lane").is_in(_drivers(topology))
    ).select(
        "param_version",
        backend=attr("backend"),
        end_ns="ts_ns",
        total=attr("total_s").cast(pl.Float64, strict=False),
        **{name: attr(name).cast(pl.Float64, strict=False) for name in names},
    )
    return [
        {
            "start_ns": row["end_ns"] - round(row["total"] * 1e9),
            **{key: row[key] for key in ("end_ns", "param_version", "backend")},
            "stages": {n.removesuffix("_s"): row[n] for n in names if row[n] is not None},
        }
        for row in table.drop_nulls("total").sort("end_ns").iter_rows(named=True)
    ]
