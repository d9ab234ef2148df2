"""Device memory per state: peaks, headroom, and how far a token budget could grow.

Headroom of a state = total - peak of what is in use on the device, all processes together. Of the
total a margin of 10 % stays free: fragmentation and longer batches need it. What an update adds
to the resident weights and optimizer (allocator peak - allocated after it) grows with the tokens
of a micro-batch, so the budget may grow by about

    1 + (total x 0.9 - peak) / (allocator peak - allocated)

in a first approximation; a budget below the longest sequence fails whatever memory is left.

Worked example: total 100, peak in update_actor 60, allocator peak 50, allocated 20: 1 + 30 / 30
= 2, twice the tokens per micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from rlinsight.trace.topology import Topology

#: Share of a device's memory that stays free.
MARGIN: Final = 0.1

COUNTERS: Final = ("device_memory_used_bytes", "device_memory_total_bytes")
_UPDATE: Final = "train.update_actor"


@dataclass(frozen=True)
class StateMemory:
    """Most memory in use on a device while it was in a state, in bytes, all processes together."""

    device: str
    state: str
    peak_bytes: int
    total_bytes: int | None
    headroom_bytes: int | None
    headroom: float | None


@dataclass(frozen=True)
class RankMemory:
    """What the allocator of a trainer rank held, in bytes, over the run.

    `budget_factor` is by how much its token budget may grow (see above), None where the device
    was not sampled.
    """

    lane: str
    peak_bytes: int
    allocated_bytes: int | None
    budget_factor: float | None


@dataclass(frozen=True)
class RankSpread:
    """How evenly the ranks use memory: `imbalance` = max / mean - 1 of the peaks."""

    ranks: tuple[RankMemory, ...]
    imbalance: float | None


def state_memory(pieces: pl.DataFrame) -> list[StateMemory]:
    """Return the peak of each (device, state), largest first per device."""
    used, total = (pl.col(name).max() for name in COUNTERS)
    table = (
        pieces.filter(pl.col(COUNTERS[0]).is_not_null())
        .group_by("device", "state")
        .agg(peak=used, total=total)
        .sort("device", "peak", "state", descending=[False, True, False])
    )
    return [_state(*row) for row in table.select("device", "state", "peak", "total").iter_rows()]


def _state(device: str, state: str, peak: float, total: float | None) -> StateMemory:
    headroom = None if total is None else int(total - peak)
    return StateMemory(
        device=device,
        state=state,
        peak_bytes=int(peak),
        total_bytes=None if total is None else int(total),
        headroom_bytes=headroom,
        headroom=headroom / total if headroom is not None and total else None,
    )


def rank_spread(
    counters: pl.DataFrame, topology: Topology, states: list[StateMemory]
) -> RankSpread | None:
    """Return the allocator peaks of the trainer ranks, None where no rank recorded one."""
    ranks = [lane for lane in topology.lanes if lane.role == "trainer_rank"]
    peaks = _by_lane(counters, "device_memory_peak_bytes", pl.col("value").max())
    resident = _by_lane(counters, "device_memory_allocated_bytes", pl.col("value").last())
    updates = {entry.device: entry for entry in states if entry.state == _UPDATE}
    found = []
    for lane in ranks:
        if lane.id in peaks:
            device = updates.get(lane.devices[0]) if lane.devices else None
            peak, kept = peaks[lane.id], resident.get(lane.id)
            factor = _budget_factor(peak, kept, device)
            found.append(
                RankMemory(lane.id, int(peak), None if kept is None else int(kept), factor)
            )
    if not found:
        return None
    mean = sum(rank.peak_bytes for rank in found) / len(found)
    worst = max(rank.peak_bytes for rank in found)
    return RankSpread(tuple(found), worst / mean - 1 if len(found) > 1 and mean else None)


def _by_lane(counters: pl.DataFrame, name: str, value: pl.Expr) -> dict[str, float]:
    chosen = counters.filter(pl.col("name").cast(pl.String) == name).sort("ts_ns")
    return dict(chosen.group_by(pl.col("lane").cast(pl.String)).agg(value).iter_rows())


def _budget_factor(
    peak: float, allocated: float | None, device: StateMemory | None
) -> float | None:
    if allocated is None or device is None or device.total_bytes is None or peak <= allocated:
        return None
    left = device.total_bytes * (1 - MARGIN) - device.peak_bytes
    return 1 + left / (peak - allocated)
