"""What verl imports in each process of an emulated run (VERL_USE_EXTERNAL_MODULES names it)."""

from __future__ import annotations

import sys

from rlinsight.runs.cpu import patches as cpu_patches
from rlinsight.runs.cpu.platform import CpuPlatform
from rlinsight.runs.emulated import patches

#: The CPU's patches that an emulated run needs as well.
_CPU_PATCHES = ("process_group_backend",)
_SWITCH_S = 0.0005

# An agent loop hands each request to a thread and back, several times. Python lets a busy thread
# keep the interpreter for 5 ms, which a hundred requests at once would wait for one by one.
sys.setswitchinterval(_SWITCH_S)

# verl imports vLLM wherever it is installed; no process needs it, and it takes ten seconds.
if "vllm" not in sys.modules:
    sys.modules["vllm"] = None  # type: ignore[assignment]

cpu_patches.install([p for p in cpu_patches.PATCHES if p.name in _CPU_PATCHES])
patches.install()

__all__ = ["CpuPlatform"]
