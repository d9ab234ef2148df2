"""Ascend NPUs: what `npu-smi` prints, read by its headers.

The tool's tables changed with every generation: the 910B has no Phy-ID, an A3 card has two
chips (two devices), the 950 has its own columns and prints `NPU Util(%)` where the others
print `AICore(%)`. Nothing here assumes a position; a header says what a number is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

#: The tool says MB and means 2^20 bytes: a 64 GiB chip is printed as 65536.
_MB: Final = 1 << 20
_ABSENT: Final = frozenset({"", "-", "NA", "N/A"})
#: The two-row table prints `Chip  Phy-ID`, two columns; the mapping prints `Chip Phy-ID`, one.
_INFO_TITLE: Final = re.compile(r"NPU\sID|NPU\sUtil\(%\)|\S+")
_WATCH_TITLE: Final = re.compile(r"[A-Za-z][A-Za-z ]*\([^)]*\)")
_UTILIZATION: Final = ("AICore(%)", "NPU Util(%)")


@dataclass(frozen=True)
class NpuReading:
    """One chip as `npu-smi` printed it; None where it printed nothing or a dash.

    `aicore_ratio` is a fraction (1.0 = busy all the time) of what the table offers as the
    utilization; `utilization_column` is that column's title.
    """

    npu: int
    chip: int | None = None
    phy_id: int | None = None
    name: str | None = None
    health: str | None = None
    power_w: float | None = None
    temp_c: float | None = None
    aicore_ratio: float | None = None
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None
    utilization_column: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class NpuUsage:
    """One chip as `npu-smi info -t usages` printed it; ratios are fractions."""

    npu: int
    chip: int | None = None
    hbm_total_bytes: int | None = None
    hbm_used_ratio: float | None = None
    aicore_ratio: float | None = None
    aivector_ratio: float | None = None
    aicpu_ratio: float | None = None
    ctrlcpu_ratio: float | None = None
    hbm_bandwidth_ratio: float | None = None


def parse_info(text: str) -> list[NpuReading]:
    """Read the table of `npu-smi info`: one reading per chip, in the order of the table.

    The list is empty when the text holds no such table.
    """
    header: list[list[list[str]]] = []
    readings: list[NpuReading] = []
    for rows in _blocks(text):
        words = " ".join(cell for row in rows for cell in row)
        if "Health" in words:
            header = [[_INFO_TITLE.findall(cell) for cell in row] for row in rows]
        elif "Process id" in words:
            header = []
        elif header:
            readings.extend(_devices(header, rows))
    return readings


def parse_usages(text: str) -> list[NpuUsage]:
    """Read `npu-smi info -t usages`: one entry per chip, whether its id comes first or last."""
    usages: list[NpuUsage] = []
    npu: int | None = None
    for chip in _property_blocks(text):
        npu = integer(chip.get("NPU ID")) if "NPU ID" in chip else npu
        if npu is not None and any("Rate" in key for key in chip):
            usages.append(_usage(npu, chip))
    return usages


def parse_watch(text: str) -> list[NpuReading]:
    """Read lines of `npu-smi info watch`, in their order; it prints no bytes, so none are given."""
    titles: list[str] = []
    readings: list[NpuReading] = []
    for line in text.splitlines():
        if "NpuID" in line:
            titles = _WATCH_TITLE.findall(line)
            continue
        values = line.split()
        if len(values) == len(titles) and values and values[0].isdigit():
            readings.append(_watched(dict(zip(titles, values, strict=True))))
    return readings


def _blocks(text: str) -> Iterator[list[list[str]]]:
    """Yield the rows between two rules of the table, each as its cells."""
    rows: list[list[str]] = []
    for line in [*text.splitlines(), "+"]:
        stripped = line.strip()
        if stripped.startswith("|"):
            rows.append([cell.strip() for cell in stripped.strip("|").split("|")])
        elif rows:
            yield rows
            rows = []


def _devices(header: list[list[list[str]]], rows: list[list[str]]) -> Iterator[NpuReading]:
    height = len(header)
    for first in range(0, len(rows) - height + 1, height):
        values: dict[str, str] = {}
        for titles, row in zip(header, rows[first : first + height], strict=True):
            if len(titles) == len(row):
                values |= _row_values(titles, row)
        npu = integer(values.get("NPU", values.get("NPU ID")))
        if npu is not None:
            yield _reading(npu, values)


def _row_values(titles: list[list[str]], row: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for names, cell in zip(titles, row, strict=True):
        if names:
            # `3318 / 65536` is one value, `61609/ 65536` too.
            words = re.sub(r"\s*/\s*", "/", cell).split(maxsplit=len(names) - 1)
            # Fewer words than columns: which one is missing cannot be told, so none is used.
            if len(words) == len(names):
                values |= zip(names, words, strict=True)
    return values


def _reading(npu: int, values: Mapping[str, str]) -> NpuReading:
    column = next((title for title in _UTILIZATION if title in values), None)
    used, _, total = values.get("HBM-Usage(MB)", "").partition("/")
    return NpuReading(
        npu=npu,
        chip=integer(values.get("Chip")),
        phy_id=integer(values.get("Phy-ID")),
        name=_text(values.get("Name")),
        health=_text(values.get("Health")),
        power_w=_number(values.get("Power(W)")),
        temp_c=_number(values.get("Temp(C)")),
        aicore_ratio=_fraction(values.get(column or "")),
        hbm_used_bytes=_megabytes(used),
        hbm_total_bytes=_megabytes(total),
        utilization_column=column,
    )


def _watched(values: Mapping[str, str]) -> NpuReading:
    columns = {title.replace("AI Core", "AICore"): value for title, value in values.items()}
    column = next((title for title in _UTILIZATION if title in columns), None)
    return NpuReading(
        npu=int(columns["NpuID(Idx)"]),
        chip=integer(columns.get("ChipId(Idx)")),
        power_w=_number(columns.get("Pwr(W)")),
        temp_c=_number(columns.get("Temp(C)")),
        aicore_ratio=_fraction(columns.get(column or "")),
        utilization_column=column,
    )


def _property_blocks(text: str) -> Iterator[dict[str, str]]:
    """Yield the `key : value` lines in groups; a key that comes again begins the next chip."""
    block: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            continue
        if key in block or key == "NPU ID":
            yield block
            block = {}
        block[key] = value
    yield block


def _usage(npu: int, chip: Mapping[str, str]) -> NpuUsage:
    return NpuUsage(
        npu=npu,
        chip=integer(chip.get("Chip ID")),
        hbm_total_bytes=_megabytes(chip.get("HBM Capacity(MB)")),
        hbm_used_ratio=_fraction(chip.get("HBM Usage Rate(%)")),
        aicore_ratio=_fraction(chip.get("Aicore Usage Rate(%)")),
        aivector_ratio=_fraction(chip.get("Aivector Usage Rate(%)")),
        aicpu_ratio=_fraction(chip.get("Aicpu Usage Rate(%)")),
        ctrlcpu_ratio=_fraction(chip.get("Ctrlcpu Usage Rate(%)")),
        hbm_bandwidth_ratio=_fraction(chip.get("HBM Bandwidth Usage Rate(%)")),
    )


def _text(value: str | None) -> str | None:
    return None if value is None or value.strip() in _ABSENT else value.strip()


def _number(value: str | None) -> float | None:
    known = _text(value)
    try:
        return None if known is None else float(known)
    except ValueError:
        return None


def integer(value: str | None) -> int | None:
    """Return a printed whole number, None for a dash and what is none."""
    number = _number(value)
    return None if number is None or number != int(number) else int(number)


def _fraction(value: str | None) -> float | None:
    number = _number(value)
    return None if number is None else number / 100


def _megabytes(value: str | None) -> int | None:
    number = _number(value)
    return None if number is None else round(number * _MB)
