"""What was recorded of each weight sync: the driver's stages, the replicas' gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rlinsight.analyzers.occupancy import attr
from rlinsight.trace.topology import Topology

TRANSFER = ("build_group", "transfer")
MEMORY = ("release_kv_cache", "resume_kv_cache", "sleep", "wake")
_RECORDED = ("abort", *TRANSFER, *MEMORY, "resume")
_WHOLE = ("weight_sync", "other:weight_sync.total")
_PREFIX = "other:weight_sync."


@dataclass(frozen=True)
class Replicas:
    """Closed gates (lane, start_ns, end_ns) and emptied engines (lane, ts_ns, aborted)."""

    gates: pl.DataFrame
    emptied: pl.DataFrame

    @classmethod
    def read(cls, spans: pl.DataFrame, markers: pl.DataFrame, topology: Topology) -> Replicas:
        """Take what concerns the replicas out of the records."""
        mine = pl.col("lane").is_in([lane.id for lane in topology.replicas()])
        aborts = markers.filter(mine & (pl.col("kind") == "abort"))
        aborted = attr("aborted_requests").cast(pl.Int64, strict=False)
        return cls(
            gates=spans.filter(mine & (pl.col("activity") == "paused")).select(
                "lane", "start_ns", "end_ns"
            ),
            emptied=aborts.select("lane", "ts_ns", aborted=aborted),
        )

    def during(self, start_ns: int, end_ns: int) -> tuple[float | None, float | None, int | None]:
        """Return (longest drain in s, longest stall in s, aborted requests) of one sync."""
        gates = self.gates.filter(pl.col("start_ns").is_between(start_ns, end_ns))
        empty = self.emptied.filter(pl.col("ts_ns").is_between(start_ns, end_ns))
        drained = gates.join(empty, on="lane").select(ns=pl.col("ts_ns") - pl.col("start_ns"))
        stalled = gates.select(ns=pl.col("end_ns") - pl.col("start_ns"))
        aborted = int(empty["aborted"].sum()) if empty["aborted"].count() else None
        return _max_s(drained), _max_s(stalled), aborted


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
    sums = placed.group_by("sync", stage=pl.col("activity").str.strip_prefix(_PREFIX)).agg(
        ns=(pl.col("end_ns") - pl.col("start_ns")).sum()
    )
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


def _max_s(frame: pl.DataFrame) -> float | None:
    longest = frame.filter(pl.col("ns") >= 0)["ns"].max()
    return longest / 1e9 if isinstance(longest, int) else None
