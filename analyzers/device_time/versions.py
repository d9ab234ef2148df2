"""Version windows: from the moment a parameter version is live on the rollouters to the next."""

from __future__ import annotations

import polars as pl

from rlinsight.trace.topology import Topology

SCHEMA = {"version": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}


def version_windows(markers: pl.DataFrame, topology: Topology, end_ns: int) -> pl.DataFrame:
    """Return (version, start_ns, end_ns), ordered; the last window reaches to `end_ns`.

    A version is live when the last standalone replica has acknowledged it (`param_sync`
    markers on replica lanes). Hybrid replicas decide where there are no standalone ones:
    beside those they take a version only when they are needed, at a validation say. Where no
    replica reports, the trainer does. A version that is set again later (a hybrid replica
    that wakes up) starts no new window.

    Worked example: replica0 takes version 3 at 10 s and replica1 at 11 s, both take version
    4 at 20 s, the run ends at 24 s: version 3 is 11-20 s, version 4 is 20-24 s.
    """
    syncs = markers.filter((pl.col("kind") == "param_sync") & pl.col("param_version").is_not_null())
    lanes = topology.replicas("standalone") or topology.replicas()
    replicas = [lane.id for lane in lanes]
    on_replicas = syncs.filter(pl.col("lane").is_in(replicas))
    syncs = syncs if on_replicas.is_empty() else on_replicas
    first = syncs.group_by("param_version", "lane").agg(pl.col("ts_ns").min())
    live = (
        first.group_by("param_version")
        .agg(start_ns=pl.col("ts_ns").max())
        .sort("param_version")
        # A replica that lags a whole version behind must not make windows run backwards.
        .with_columns(start_ns=pl.col("start_ns").cum_max())
    )
    return live.select(
        version=pl.col("param_version").cast(pl.Int32),
        start_ns="start_ns",
        end_ns=pl.col("start_ns").shift(-1).fill_null(end_ns),
    )
