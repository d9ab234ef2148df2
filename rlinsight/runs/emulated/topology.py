"""Which emulated devices exist, and who occupies them.

The nodes of a pool are `trainer0`, `trainer1`, ... and `rollout0`, ...; a device is
`<node>/<index>`, as on real nodes.
"""

from __future__ import annotations

import os
from typing import Literal

from rlinsight.runs.emulated.setup import PoolSize, setup
from rlinsight.trace.recorder import current
from rlinsight.trace.topology import Device, Lane, Topology

PoolName = Literal["trainer", "rollout"]


def devices(pool: PoolName, size: PoolSize) -> tuple[Device, ...]:
    """Return the devices of a pool, in order."""
    places = [(f"{pool}{i // size.per_node}", i % size.per_node) for i in range(size.devices)]
    return tuple(
        Device(f"{node}/{index}", node=node, index=index, kind="emulated", pool=pool)
        for node, index in places
    )


def declare_trainer() -> None:
    """Declare the trainer's devices and its rank, which stands for all of them."""
    writer = current()
    if writer is None:
        return
    found = devices("trainer", setup().trainer)
    ids = [device.id for device in found]
    rank = Lane("trainer/rank0", "trainer_rank", ids, rank=0, node=writer.node, pid=os.getpid())
    driver = Lane("trainer", role="trainer", devices=ids)
    writer.report.declare(Topology(found, (driver, rank)))


def declare_replica(rank: int, kind: str, place: int, size: int, capacity: int) -> None:
    """Declare replica `rank`, which is number `place` of its kind and has `size` devices."""
    writer = current()
    if writer is None:
        return
    standalone, job = kind == "standalone", setup()
    pool = job.rollout if standalone else job.trainer
    found = () if pool is None else devices("rollout" if standalone else "trainer", pool)
    mine = found[place * size : (place + 1) * size]
    lane = Lane(
        f"replica{rank}",
        role="replica",
        devices=[device.id for device in mine],
        engine_kind="standalone" if standalone else "hybrid",
        capacity=capacity,
        replica=rank,
        node=writer.node,
        pid=os.getpid(),
    )
    writer.report.declare(Topology(mine, (lane,)))
