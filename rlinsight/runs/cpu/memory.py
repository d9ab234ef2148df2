"""Memory of this process and node, read where Linux keeps it, in bytes."""

from __future__ import annotations

from pathlib import Path

_KIB = 1024
_RESET_PEAK = "5"


def resident_bytes() -> int:
    """Memory that this process occupies now."""
    return _field_bytes("/proc/self/status", "VmRSS")


def peak_resident_bytes() -> int:
    """The most memory that this process has occupied since `reset_peak`."""
    return _field_bytes("/proc/self/status", "VmHWM")


def reset_peak() -> None:
    """Start a new peak. Where the kernel refuses, the peak stays that of the process's life."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return


def node_bytes() -> tuple[int, int]:
    """Memory of the node: (available, total)."""
    return (
        _field_bytes("/proc/meminfo", "MemAvailable"),
        _field_bytes("/proc/meminfo", "MemTotal"),
    )


def _field_bytes(path: str, field: str) -> int:
    with Path(path).open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * _KIB
    raise OSError(f"`{path}` has no field `{field}`")
