"""How evenly the work lies: over replicas, over ranks, over time."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rlinsight.analyzers.config import count
from rlinsight.analyzers.engines.periodic import ConstantGap, Periodicity, constant_gap, periodic
from rlinsight.analyzers.engines.pressure import KvPressure, kv_pressure
from rlinsight.analyzers.engines.ranks import RankBalance, rank_balance
from rlinsight.analyzers.engines.replica_speed import ReplicaSpeed, replica_speeds
from rlinsight.analyzers.engines.spread import (
    ReplicaVersions,
    RequestSpread,
    replica_versions,
    request_spread,
)
from rlinsight.analyzers.engines.stragglers import BatchSpeed, batch_speed, workers_of_requests
from rlinsight.analyzers.tables import Tables, within
from rlinsight.trace.topology import EngineKind

Window = tuple[int, int]
_FREQUENCIES = ("trainer.test_freq", "trainer.save_freq")


@dataclass(frozen=True)
class Balance:
    """None or empty where too little was recorded to tell.

    `batch` compares the replicas of one kind within the steps of the window: long tail, or a
    slow device; None where batches overlap. `periodic` are
    patterns of all bubbles over the steps, `constant_gap` is set where all are equally long;
    both in wall time, whatever number of devices idles. `versions` and `kv_pressure` are of the
    whole run.
    """

    requests: RequestSpread | None
    versions: tuple[ReplicaVersions, ...]
    replicas: tuple[ReplicaSpeed, ...]
    batch: BatchSpeed | None
    ranks: RankBalance | None
    kv_pressure: tuple[KvPressure, ...]
    periodic: tuple[Periodicity, ...]
    constant_gap: ConstantGap | None


def balance(tables: Tables, gaps: pl.DataFrame, window: Window) -> Balance:
    """Return the balance in `window`; `gaps` are its bubbles (start_ns, end_ns)."""
    topology = tables.topology
    requests = within(tables.requests, window, "submit_ns", "end_ns")
    kind: EngineKind = "standalone" if topology.replicas("standalone") else "hybrid"
    lanes = [replica.id for replica in topology.replicas(kind)]
    steps = tables.steps.filter(pl.col("start_ns").is_between(*window))
    return Balance(
        requests=request_spread(requests, topology, window, engine_kind=kind),
        versions=replica_versions(tables.markers, topology, tables.end_ns, engine_kind=kind),
        replicas=replica_speeds(requests, {r.id: r.engine_kind for r in topology.replicas()}),
        batch=batch_speed(
            workers_of_requests(requests.filter(pl.col("lane").is_in(lanes)), steps["start_ns"])
        ),
        ranks=rank_balance(_updates(tables, window), topology),
        kv_pressure=kv_pressure(tables.counters, tables.requests),
        periodic=periodic(gaps, steps.select("step", "start_ns"), _frequencies(tables)),
        constant_gap=constant_gap(gaps),
    )


def _updates(tables: Tables, window: Window) -> pl.DataFrame:
    updates = tables.spans.lazy().filter(pl.col("activity") == "update_actor")
    return within(updates, window, "start_ns", "end_ns").collect()


def _frequencies(tables: Tables) -> dict[str, int]:
    """Return the configured frequencies in training steps; fully_async counts them in versions."""
    updates = count(tables.config, "async_training.trigger_parameter_sync_step")
    each = updates or 1 if tables.mode == "fully_async" else 1
    found = {key: count(tables.config, key) for key in _FREQUENCIES}
    return {key: every * each for key, every in found.items() if every is not None}
