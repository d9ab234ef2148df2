"""What the allocator of a worker holds on its NPU, asked from inside that worker."""

from __future__ import annotations

import sys


def torch_npu_memory() -> dict[str, int] | None:
    """Return what the allocator of this process holds on its NPU, in bytes, None without one.

    Imports nothing: a worker that uses the NPU has loaded `torch_npu` itself.
    """
    torch = sys.modules.get("torch")
    if torch is None or "torch_npu" not in sys.modules or not torch.npu.is_initialized():
        return None
    free_bytes, total_bytes = torch.npu.mem_get_info()
    return {
        "allocated_bytes": int(torch.npu.memory_allocated()),
        "allocated_peak_bytes": int(torch.npu.max_memory_allocated()),
        "reserved_bytes": int(torch.npu.memory_reserved()),
        "reserved_peak_bytes": int(torch.npu.max_memory_reserved()),
        "device_free_bytes": int(free_bytes),
        "device_total_bytes": int(total_bytes),
    }
