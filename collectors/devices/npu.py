"""The best source of Ascend figures that this host has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.collectors.devices.dcmi import open_dcmi
from rlinsight.collectors.devices.npu_smi import open_npu_smi
from rlinsight.collectors.devices.source import SourceMissing

if TYPE_CHECKING:
    from rlinsight.collectors.devices.source import Source


def open_npus(node: str) -> Source:
    """Return the DCMI library, else the `npu-smi` tool; raise SourceMissing without either."""
    try:
        return open_dcmi(node)
    except SourceMissing as no_library:
        try:
            return open_npu_smi(node)
        except SourceMissing as no_tool:
            raise SourceMissing(f"{no_library}; {no_tool}") from None
