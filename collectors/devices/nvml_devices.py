"""The GPUs of a node as NVML lists them, under the names the run has for them.

Ray and CUDA name a device as `CUDA_VISIBLE_DEVICES` does: by number, or by UUID. The UUID
is what both sides agree on; a number alone may mean another device on either side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from rlinsight.collectors.devices.board import Unsupported
from rlinsight.collectors.devices.source import SourceMissing

T = TypeVar("T")

#: Values of CUDA_VISIBLE_DEVICES that hide every device.
_NOTHING: Final = frozenset({"-1", "none", "void", "nodevfiles"})


@dataclass(frozen=True)
class Gpu:
    """One device that is sampled: a whole GPU, or one MIG instance of it.

    `lane` is its id in the trace. `parent` is the handle of the GPU that a MIG instance
    (`gpu_instance`) belongs to.
    """

    handle: Any
    lane: str
    uuid: str
    index: int
    parent: Any = None
    gpu_instance: int | None = None

    @property
    def is_instance(self) -> bool:
        """Whether this is a MIG instance; clocks, power and utilization are its GPU's."""
        return self.parent is not None


def list_gpus(nvml: Any, node: str) -> list[Gpu]:
    """Return the devices the run may see. Raises SourceMissing when there is none."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    uuids = [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    instances = [list(_instances(nvml, handle)) for handle in handles]
    known = [*uuids, *(uuid for of_one in instances for uuid, _, _ in of_one)]
    names = visible_names(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids, known)
    gpus: list[Gpu] = []
    for index, (handle, uuid) in enumerate(zip(handles, uuids, strict=True)):
        parts = [
            Gpu(part, f"{node}/{names.get(own, own)}", own, index, handle, number)
            for own, part, number in instances[index]
            if own in names or uuid in names
        ]
        if uuid in names or parts:
            gpus.append(Gpu(handle, f"{node}/{names.get(uuid, index)}", uuid, index))
            gpus.extend(parts)
    if not gpus:
        raise SourceMissing(f"none of {len(handles)} GPUs is visible to the run")
    return gpus


def visible_names(
    visible: str | None, uuids: Sequence[str], known: Sequence[str] = ()
) -> dict[str, str]:
    """Return the run's name of each device it may see, by UUID.

    `uuids` are those of the whole GPUs in NVML's order; `known` may add MIG instances.
    Without a list (unset or empty: Ray empties it for workers without GPU) every GPU is
    named by its number. As in CUDA a UUID may be shortened, and an entry that matches
    nothing ends the list.

    >>> visible_names("1,GPU-aa", ["GPU-aa11", "GPU-bb22"])
    {'GPU-bb22': '1', 'GPU-aa11': 'GPU-aa'}
    """
    if not visible:
        return {uuid: str(index) for index, uuid in enumerate(uuids)}
    names: dict[str, str] = {}
    for entry in (part.strip() for part in visible.split(",")):
        uuid = _entry(entry, uuids, known)
        if uuid is None or entry.lower() in _NOTHING:
            break
        names[uuid] = entry
    return names


def translated(nvml: Any, call: Callable[[], T]) -> T:
    """Return what a call returns; what it will never return raises Unsupported."""
    try:
        return call()
    except (
        nvml.NVMLError_NotSupported,
        nvml.NVMLError_FunctionNotFound,
        nvml.NVMLError_NoPermission,
    ) as error:
        raise Unsupported(str(error)) from error
    except AttributeError as error:
        raise Unsupported(f"the installed nvidia-ml-py is too old: {error}") from error


def _entry(entry: str, uuids: Sequence[str], known: Sequence[str]) -> str | None:
    if entry.isdigit():
        return uuids[int(entry)] if int(entry) < len(uuids) else None
    matching = [uuid for uuid in dict.fromkeys((*uuids, *known)) if uuid.startswith(entry)]
    return matching[0] if entry and len(matching) == 1 else None


def _instances(nvml: Any, handle: Any) -> Iterator[tuple[str, Any, int]]:
    """Yield (UUID, handle, GPU instance id) of each MIG instance of a GPU."""
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
        slots = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError:
        return
    for slot in range(slots):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except nvml.NVMLError_NotFound:
            continue
        uuid = _text(nvml.nvmlDeviceGetUUID(part))
        yield uuid, part, nvml.nvmlDeviceGetGpuInstanceId(part)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
