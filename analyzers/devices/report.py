"""Puts together what is known of the devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from rlinsight.analyzers.devices import activity, memory
from rlinsight.analyzers.devices.activity import (
    DeviceActivity,
    StateActivity,
    device_activity,
    state_activity,
)
from rlinsight.analyzers.devices.health import DeviceTrouble, troubles
from rlinsight.analyzers.devices.joined import joined
from rlinsight.analyzers.devices.kernels import KernelStage, kernel_stages
from rlinsight.analyzers.devices.memory import (
    RankSpread,
    StateMemory,
    rank_spread,
    state_memory,
)
from rlinsight.analyzers.devices.sharing import MemoryShare, memory_shares

if TYPE_CHECKING:
    from rlinsight.analyzers.tables import Tables

_LIMIT: Final = "device_power_limit_w"


@dataclass(frozen=True)
class DeviceReport:
    """What the devices did, over the window of the report; kernel stages are of the whole run.

    `busy_share` is the mean utilization of all devices in their useful and overhead states.
    Lists are empty where nothing was sampled; devices without samples are in none of them.
    """

    busy_share: float | None
    devices: tuple[DeviceActivity, ...]
    states: tuple[StateActivity, ...]
    memory: tuple[StateMemory, ...]
    ranks: RankSpread | None
    sharing: tuple[MemoryShare, ...]
    troubles: tuple[DeviceTrouble, ...]
    kernels: tuple[KernelStage, ...]


def device_report(
    tables: Tables, segments: pl.DataFrame, window: tuple[int, int]
) -> DeviceReport | None:
    """Return what the devices did, None where they were neither sampled nor profiled."""
    counters = tables.counters
    pieces = joined(segments, counters, (*activity.COUNTERS, *memory.COUNTERS), window)
    stages = kernel_stages(tables.markers, tables.spans, counters, tables.topology)
    if pieces.is_empty() and not stages:
        return None
    pools = {device.id: device.pool for device in tables.topology.devices}
    limits = _limits(counters)
    devices = device_activity(pieces, limits, dict(pools))
    states = state_memory(pieces)
    return DeviceReport(
        busy_share=_busy_share(devices),
        devices=tuple(devices),
        states=tuple(state_activity(pieces, limits, dict(pools))),
        memory=tuple(states),
        ranks=rank_spread(counters, tables.topology, states),
        sharing=tuple(memory_shares(tables.topology, pieces)),
        troubles=tuple(troubles(tables.markers, devices, window)),
        kernels=tuple(stages),
    )


def _limits(counters: pl.DataFrame) -> dict[str, float]:
    chosen = counters.filter(pl.col("name").cast(pl.String) == _LIMIT).sort("ts_ns")
    return dict(
        chosen.group_by(pl.col("lane").cast(pl.String)).agg(pl.col("value").last()).iter_rows()
    )


def _busy_share(devices: list[DeviceActivity]) -> float | None:
    known = [d for d in devices if d.busy_utilization is not None and d.busy_s > 0]
    busy_s = sum(device.busy_s for device in known)
    if not busy_s:
        return None
    return sum((d.busy_utilization or 0.0) * d.busy_s for d in known) / busy_s
