"""Which chip is which: the card and chip of `npu-smi`, and the logical id of frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from rlinsight.collectors.devices.ascend import NpuReading, integer

#: Column titles of more than one word; every other word of a header is a title itself.
_TITLE: Final = re.compile(r"(?:NPU|Chip|Slot)\s(?:ID|Logic\sID|Phy-ID|Name)|NPU\sUtil\(%\)|\S+")


def parse_mapping(text: str) -> dict[tuple[int, int | None], int]:
    """Read `npu-smi info -m`: the logical id, which frameworks use, by (NPU id, chip id).

    A chip without logical id (the card's controller) is left out. A table that has no chip
    ids is keyed by (NPU id, None), one without logical ids gives the physical ones.
    """
    titles: list[str] = []
    mapping: dict[tuple[int, int | None], int] = {}
    for line in text.splitlines():
        if "NPU ID" in line:
            titles = _TITLE.findall(line)
            continue
        row = dict(zip(titles, line.split(), strict=False))
        npu = integer(row.get("NPU ID"))
        logical = integer(row.get("Chip Logic ID", row.get("Chip Phy-ID")))
        if npu is not None and logical is not None:
            mapping[npu, integer(row.get("Chip ID"))] = logical
    return mapping


def device_ids(
    readings: Iterable[NpuReading], mapping: Mapping[tuple[int, int | None], int]
) -> list[str]:
    """Return the id within its node of each reading: the logical one, which frameworks use.

    Without a mapping the place in the table, which is how the driver numbers its chips.
    """
    ids = []
    for place, reading in enumerate(readings):
        # The table of a 950 has no chip column; its mapping may still call the chip 0.
        chips = (reading.chip, None) if reading.chip is not None else (None, 0)
        known = (mapping[reading.npu, chip] for chip in chips if (reading.npu, chip) in mapping)
        ids.append(str(next(known, place)))
    return ids
