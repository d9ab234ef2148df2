"""Zero the GPU code that an sm_90 device never runs inside shared objects.

    python scripts/gpu/prune_fatbins.py FILE.so ...

A CUDA library holds its kernels once per architecture, in "fatbin" containers. Zeroes in place of
the code for other chips keep every offset and compress to nothing. Layout of a container: magic,
version, header size and payload size; then entries of kind (1 PTX, 2 machine code), header size,
payload size and, at byte 28, the architecture.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<4xHHQ")
ENTRY = struct.Struct("<HHIQ")
ARCHITECTURE = 90
PTX, MACHINE_CODE = 1, 2


@dataclass(frozen=True)
class Entry:
    """Code for one architecture: its payload is `data[start:end]`."""

    kind: int
    architecture: int
    start: int
    end: int


def containers(data: bytearray) -> Iterator[list[Entry]]:
    """Yield the entries of each container."""
    at = data.find(MAGIC)
    while at >= 0:
        version, header, size = CONTAINER.unpack_from(data, at)
        first, last = at + header, at + header + size
        if version == 1 and header == CONTAINER.size and last <= len(data):
            yield list(entries(data, first, last))
            at = data.find(MAGIC, last)
        else:  # the same bytes by chance
            at = data.find(MAGIC, at + 4)


def entries(data: bytearray, at: int, end: int) -> Iterator[Entry]:
    """Yield the entries between two offsets."""
    while at + 64 <= end:
        kind, _, header, size = ENTRY.unpack_from(data, at)
        (architecture,) = struct.unpack_from("<I", data, at + 28)
        if not 32 <= header <= 4096:
            raise SystemExit(f"no entry of a fatbin container at byte {at}")
        yield Entry(kind, architecture, at + header, at + header + size)
        at += header + size


def is_dead(entry: Entry, *, has_own: bool) -> bool:
    """Return whether a device of `ARCHITECTURE` never loads this code.

    Where it has machine code of its own it takes that; else it compiles older PTX.
    """
    if has_own:
        return entry.kind != MACHINE_CODE or entry.architecture != ARCHITECTURE
    return entry.kind == MACHINE_CODE or entry.architecture > ARCHITECTURE


def prune(path: Path) -> None:
    """Rewrite a library without the code for other architectures."""
    data, dropped = bytearray(path.read_bytes()), 0
    for found in containers(data):
        has_own = any(e.kind == MACHINE_CODE and e.architecture == ARCHITECTURE for e in found)
        for entry in found:
            if is_dead(entry, has_own=has_own):
                data[entry.start : entry.end] = bytes(entry.end - entry.start)
                dropped += entry.end - entry.start
    path.write_bytes(data)
    sys.stdout.write(f"{path.name}: {dropped / 1e6:.1f} of {len(data) / 1e6:.1f} MB zeroed\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        prune(Path(name))
