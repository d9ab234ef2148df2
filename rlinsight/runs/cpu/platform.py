"""verl's platform `cpu`: registering this class is all that verl needs to know of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from rlinsight.runs.cpu.device import CPU, device_module

_DEVICE_MODULE = device_module()
_ROLLOUT_VARIABLES = ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND")


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """A node whose devices are logical: Ray counts them, all of them are the same cores."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module: ModuleType = _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return CPU  # type: ignore[return-value]

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        """All logical devices are the same one."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Work on the CPU is done when the call returns."""

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """The allocator of the CPU has none."""

    def empty_cache(self) -> None:
        """The allocator of the CPU keeps no cache."""

    def get_device_capability(
        self,
        device_index: int = 0,  # noqa: ARG002
    ) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "RLINSIGHT_CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002
        yield

    def profiler_start(self) -> None:
        """There is no device profiler."""

    def profiler_stop(self) -> None:
        """There is no device profiler."""

    def ray_resource_name(self) -> str:
        # verl counts only `GPU` and `NPU`, and asks Ray for the accelerator ids of its resource,
        # which Ray gives for its own names alone. Logical GPUs need no real ones.
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        # Then verl hands weights to a replica on the same node through shared memory.
        return False

    def rollout_env_vars(self) -> dict[str, str]:
        return {name: os.environ[name] for name in _ROLLOUT_VARIABLES if name in os.environ}

    def cudart(self) -> None:
        return None
