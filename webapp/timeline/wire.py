"""The binary form of an answer: a JSON header, then arrays that a browser maps without parsing.

4 bytes   length of the header, little-endian
header    JSON; `arrays` has name -> [type, byte offset behind the header, length]
arrays    each at a multiple of 8 bytes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

MEDIA_TYPE: Final = "application/octet-stream"


def pack(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return header and arrays as bytes; a 2-dimensional array goes row by row."""
    places: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array)
        raw = data.tobytes()
        places[name] = [str(data.dtype), at, data.size]
        parts += [raw, bytes(-len(raw) % 8)]
        at += len(raw) + (-len(raw) % 8)
    text = json.dumps({**header, "arrays": places}, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join([len(text).to_bytes(4, "little"), text, *parts])


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Return the header and the arrays of `pack`."""
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    arrays = {
        name: np.frombuffer(data, kind, length, offset=4 + size + at)
        for name, (kind, at, length) in header.pop("arrays").items()
    }
    return header, arrays
