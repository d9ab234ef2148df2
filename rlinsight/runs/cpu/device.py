"""What verl expects of `torch.cuda`, answered for the CPU."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from rlinsight.runs.cpu import memory


class CpuDevice(str):
    """The current device.

    verl uses it both as `tensor.to(device)`, which on the CPU must read `cpu`, and as the index
    in `f"cpu:{device}"`, which must read `0`.
    """

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return format("0", spec)

    def __int__(self) -> int:
        return 0

    __index__ = __int__


CPU = CpuDevice("cpu")


def _nothing(*args: Any, **kwargs: Any) -> None:
    """There is no such thing on the CPU."""


def _answers() -> dict[str, Any]:
    nothing = (
        "empty_cache",
        "ipc_collect",
        "set_device",
        "set_per_process_memory_fraction",
        "synchronize",
    )
    return {
        **dict.fromkeys(nothing, _nothing),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: CPU,
        "get_device_name": lambda *_: "CPU",
        "get_device_capability": lambda *_: (None, None),
        **_random(),
        **_memory(),
    }


def _random() -> dict[str, Any]:
    return {
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
    }


def _memory() -> dict[str, Any]:
    peak, resident = memory.peak_resident_bytes, memory.resident_bytes
    return {
        "memory_allocated": lambda *_: resident(),
        "memory_reserved": lambda *_: resident(),
        "max_memory_allocated": lambda *_: peak(),
        "max_memory_reserved": lambda *_: peak(),
        "reset_peak_memory_stats": lambda *_: memory.reset_peak(),
        "reset_max_memory_allocated": lambda *_: memory.reset_peak(),
        "mem_get_info": lambda *_: memory.node_bytes(),
    }


def device_module() -> ModuleType:
    """Return a module with everything of `torch.cpu` and what it lacks beside `torch.cuda`."""
    module = ModuleType("rlinsight_cpu_device", doc=__doc__)
    own = {k: v for k, v in vars(torch.cpu).items() if not k.startswith("__")}
    vars(module).update({**own, **_answers()})
    return module
