"""Which devices of this node the run uses, completed with the vendor's identifiers.

A worker knows that it has device `<node>/0` and for which pool; only the sampler knows
that device's UUID. Both meet in the trace: this process repeats the workers' declarations
with the UUID in it. A device that no worker declared is not one of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlinsight.trace.process import read_process
from rlinsight.trace.topology import Device

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter


def complete_devices(writer: TraceWriter, uuids: Mapping[str, str]) -> None:
    """Declare the run's devices of this node once more, with their UUIDs."""
    for device in claimed_devices(writer.path / "live", writer.node):
        if device.uuid is None and device.id in uuids:
            writer.declare_device(replace(device, uuid=uuids[device.id]))


def claimed_devices(live: Path, node: str) -> list[Device]:
    """Return the devices that the recording processes of a node have declared so far."""
    found: dict[str, Device] = {}
    for path in live.glob(f"process-{node}-*.json"):
        try:
            topology = read_process(path.read_bytes()).topology
        except (OSError, ValueError):  # being rewritten at this moment: the next look sees it
            continue
        found.update((device.id, device) for device in topology.devices if device.node == node)
    return list(found.values())
