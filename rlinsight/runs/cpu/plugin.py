"""What verl imports in each process of a CPU run (VERL_USE_EXTERNAL_MODULES names this module)."""

from __future__ import annotations

from rlinsight.runs.cpu import metadata, patches
from rlinsight.runs.cpu.platform import CpuPlatform

metadata.install()
patches.install()

__all__ = ["CpuPlatform"]
