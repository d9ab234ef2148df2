"""Device time per pool, from the ledger of its devices."""

from __future__ import annotations

from typing import Final

import polars as pl

from rlinsight.analyzers.device_time.states import UNATTRIBUTED, kind
from rlinsight.analyzers.engines.slots import KindSlots, SlotUse
from rlinsight.analyzers.framework.figures import figures
from rlinsight.analyzers.result import FrameworkFigure, PoolReport
from rlinsight.trace.topology import Pool, Topology

#: Pool of a device in the topology -> name of the pool in reports.
POOL_NAMES: Final[dict[Pool, str]] = {"trainer": "trainer", "rollout": "rollouter"}
#: The replicas that live on a pool's devices.
_ENGINES: Final[dict[Pool, str]] = {"trainer": "hybrid", "rollout": "standalone"}


def pool_reports(
    ledger: pl.DataFrame,
    topology: Topology,
    metrics: pl.DataFrame,
    slots: SlotUse,
    window: tuple[int, int],
) -> dict[str, PoolReport]:
    """Return the report of each pool that has devices, with verl's figures about `window`.

    idle_ratio = bubble device-seconds / device-seconds, where the bubble is all time in
    which a device does neither useful nor overhead work, `unattributed` included.
    """
    reports = {}
    for pool, name in POOL_NAMES.items():
        devices = [device.id for device in topology.devices if device.pool == pool]
        if devices:
            spent = ledger.filter(pl.col("device").is_in(devices))
            kind = slots.by_kind.get(_ENGINES[pool])
            logged = figures(metrics, name, window)
            reports[name] = _report(spent, len(devices), logged, kind)
    return reports


def _report(
    spent: pl.DataFrame,
    devices: int,
    logged: tuple[FrameworkFigure, ...],
    slots: KindSlots | None,
) -> PoolReport:
    per_state = spent.group_by("state").agg(pl.col("ns").sum()).sort("ns", descending=True)
    ns: dict[str, int] = dict(per_state.iter_rows())
    kinds = {
        k: sum(v for state, v in ns.items() if kind(state) == k)
        for k in ("useful", "overhead", "bubble")
    }
    total = sum(ns.values())
    return PoolReport(
        devices=devices,
        device_seconds=total / 1e9,
        useful_seconds=kinds["useful"] / 1e9,
        overhead_seconds=kinds["overhead"] / 1e9,
        bubble_seconds=kinds["bubble"] / 1e9,
        idle_ratio=kinds["bubble"] / total if total else None,
        unattributed_ratio=ns.get(UNATTRIBUTED, 0) / total if total else None,
        ledger={state: value / 1e9 for state, value in ns.items()},
        framework_idle_ratio=_framework_idle_ratio(logged, ns),
        framework_figures=logged,
        slot_utilization=slots.utilization if slots else None,
    )


def _framework_idle_ratio(logged: tuple[FrameworkFigure, ...], ns: dict[str, int]) -> float | None:
    """Return verl's idle ratio; a timed wait in which these devices generate is none."""
    for figure in logged:
        if figure.key.endswith("idle_ratio") or "generate" not in ns:
            return figure.value
    return None
