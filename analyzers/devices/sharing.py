"""Who holds a hybrid device, seen in its memory steps.

On a device that trains and generates in turn, the engine gives its memory back to train (it
sleeps) and takes it again to generate (it wakes): a saw-tooth of tens of gigabytes. The level
half-way between the lowest and the highest value of the window tells the two apart, where the
step is at least 10 % of the device's memory. This needs no hook, so it checks what hooks say.

Worked example: 45 GB for 6 s and 3 GB for 4 s on a device of 140 GB: high for 0.6 of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from rlinsight.trace.topology import Topology

_LEAST_STEP: Final = 0.1


@dataclass(frozen=True)
class MemoryShare:
    """How long the engine held its memory on a device that it shares with a trainer.

    `engine_share` is of the sampled time; `generate_share` is the ledger's share of `generate`
    over the same window. `switches` counts changes between the levels.
    """

    device: str
    engine_share: float
    trainer_share: float
    generate_share: float
    low_bytes: int
    high_bytes: int
    switches: int


def memory_shares(topology: Topology, pieces: pl.DataFrame) -> list[MemoryShare]:
    """Return the shares of each device with a hybrid or colocated replica and visible steps."""
    found = []
    for device in _shared(topology):
        mine = pieces.filter(pl.col("device") == device)
        series = mine.select("start_ns", "end_ns", value="device_memory_used_bytes").drop_nulls()
        total = mine["device_memory_total_bytes"].max()
        if isinstance(total, float) and len(series) > 2:
            share = _share(device, series.sort("start_ns"), total, mine)
            found += [] if share is None else [share]
    return found


def _shared(topology: Topology) -> list[str]:
    trained = {d for lane in topology.lanes if lane.role == "trainer_rank" for d in lane.devices}
    engines = [*topology.replicas("hybrid"), *topology.replicas("colocated")]
    return sorted(trained & {d for lane in engines for d in lane.devices})


def _share(
    device: str, series: pl.DataFrame, total: float, pieces: pl.DataFrame
) -> MemoryShare | None:
    values = series["value"].to_numpy()
    low, high = float(values.min()), float(values.max())
    if high - low < _LEAST_STEP * total:
        return None
    held = values > (low + high) / 2
    seconds = (series["end_ns"] - series["start_ns"]).to_numpy() / 1e9
    share = float(seconds[held].sum() / seconds.sum())
    return MemoryShare(
        device=device,
        engine_share=share,
        trainer_share=1 - share,
        generate_share=_generating(pieces),
        low_bytes=int(low),
        high_bytes=int(high),
        switches=int((np.diff(held.astype(np.int8)) != 0).sum()),
    )


def _generating(pieces: pl.DataFrame) -> float:
    spent = pieces.select("state", ns=pl.col("end_ns") - pl.col("start_ns"))
    generating = spent.filter(pl.col("state") == "generate")["ns"]
    return int(generating.sum()) / int(spent["ns"].sum())
