"""The run header."""

from __future__ import annotations

from rlinsight.analyzers.result import RunHeader
from rlinsight.trace.reader import Trace


def header(trace: Trace) -> RunHeader:
    """Return what ran; counts keep standalone and hybrid replicas apart."""
    manifest, topology = trace.manifest, trace.topology
    pools = [device.pool for device in topology.devices]
    bounds = trace.time_range
    return RunHeader(
        run_id=manifest.run_id,
        mode=manifest.mode,
        engine=manifest.engine,
        device_kinds=tuple(sorted({device.kind for device in topology.devices})),
        trainer_devices=pools.count("trainer"),
        rollout_devices=pools.count("rollout"),
        standalone_replicas=len(topology.replicas("standalone")),
        hybrid_replicas=len(topology.replicas("hybrid")),
        colocated_replicas=len(topology.replicas("colocated")),
        nodes=len({device.node for device in topology.devices}),
        started_ns=bounds[0] if bounds else None,
        duration_s=(bounds[1] - bounds[0]) / 1e9 if bounds else None,
        smoke=bool(manifest.notes.get("smoke")),
        exit_code=manifest.exit_code,
    )
