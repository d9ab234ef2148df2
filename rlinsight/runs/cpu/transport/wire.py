"""Frames on a socket: bounded, in order, and authenticated by a key of the connection.

A frame is a fixed header (magic, kind, sequence number, sizes), a JSON text, raw bytes, and an
HMAC-SHA256 over all of them. Sizes are checked before anything is read or allocated.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from rlinsight.runs.cpu.transport.errors import ClosedError, WeightSyncError

MAC_BYTES = 32
MAX_TEXT_BYTES = 16 << 20

_MAGIC = b"RLW1"
_HEADER = struct.Struct(">4sBQIQ")


class Kind(IntEnum):
    """What a frame carries."""

    TENSORS = 1
    END = 2
    ACK = 3


@dataclass(frozen=True)
class Frame:
    """One frame as received; `payload` may be written to, it belongs to the caller."""

    kind: Kind
    text: Any
    payload: bytearray


class Deadline:
    """A moment by which several operations together have to be done."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def apply(self, sock: socket.socket) -> None:
        """Bound the next operation on `sock`; raises TimeoutError when time is up."""
        sock.settimeout(self.remaining_s)

    @property
    def remaining_s(self) -> float:
        """Seconds left; raises TimeoutError when time is up."""
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        return remaining

    @property
    def passed(self) -> bool:
        """Whether time is up."""
        return time.monotonic() >= self._end


def read_exactly(sock: socket.socket, size: int, deadline: Deadline) -> bytearray:
    """Return the next `size` bytes. Raises ClosedError or TimeoutError."""
    buffer = bytearray(size)
    view, received = memoryview(buffer), 0
    while received < size:
        deadline.apply(sock)
        count = sock.recv_into(view[received:])
        if not count:
            raise ClosedError(f"the peer closed the connection after {received} of {size} bytes")
        received += count
    return buffer


def write(sock: socket.socket, data: bytes | memoryview, deadline: Deadline) -> None:
    """Send all of `data`. Raises TimeoutError or OSError."""
    deadline.apply(sock)
    sock.sendall(data)


class Channel:
    """One authenticated connection; each direction has its own key and sequence."""

    def __init__(self, sock: socket.socket, *, send_key: bytes, receive_key: bytes) -> None:
        self._sock = sock
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0

    def send(
        self,
        kind: Kind,
        text: Mapping[str, Any] | list[Any] | None = None,
        payload: bytes | bytearray | memoryview = b"",
        *,
        deadline: Deadline,
    ) -> None:
        """Send one frame."""
        encoded = json.dumps(text).encode()
        size = len(encoded)
        if size > MAX_TEXT_BYTES:
            raise WeightSyncError(f"a frame's text of {size} bytes is over {MAX_TEXT_BYTES}")
        header = _HEADER.pack(_MAGIC, kind, self._sent, size, len(payload))
        self._sent += 1
        mac = _mac(self._send_key, header, encoded, payload)
        write(self._sock, header + encoded, deadline)
        if payload:
            write(self._sock, memoryview(payload), deadline)
        write(self._sock, mac, deadline)

    def receive(self, *, max_payload_bytes: int, deadline: Deadline) -> Frame:
        """Return the next frame.

        Raises WeightSyncError for one that is foreign, oversized, out of order or tampered with,
        ClosedError when the peer is gone, TimeoutError when the deadline passes.
        """
        header = bytes(read_exactly(self._sock, _HEADER.size, deadline))
        kind, text_bytes, payload_bytes = self._parse(header, max_payload_bytes)
        text = read_exactly(self._sock, text_bytes, deadline)
        payload = read_exactly(self._sock, payload_bytes, deadline)
        mac = read_exactly(self._sock, MAC_BYTES, deadline)
        if not hmac.compare_digest(bytes(mac), _mac(self._receive_key, header, text, payload)):
            raise WeightSyncError("a frame was damaged or forged on its way: its MAC is wrong")
        self._received += 1
        return Frame(Kind(kind), json.loads(text), payload)

    def _parse(self, header: bytes, max_payload_bytes: int) -> tuple[int, int, int]:
        magic, kind, sequence, text_bytes, payload_bytes = _HEADER.unpack(header)
        if magic != _MAGIC or kind not in set(Kind):
            raise WeightSyncError(f"expected a frame, found bytes that start with {header[:5]!r}")
        if text_bytes > MAX_TEXT_BYTES or payload_bytes > max_payload_bytes:
            raise WeightSyncError(
                f"a frame announces {text_bytes} + {payload_bytes} bytes; allowed are "
                f"{MAX_TEXT_BYTES} + {max_payload_bytes}"
            )
        if sequence != self._received:
            raise WeightSyncError(f"expected frame {self._received}, found frame {sequence}")
        return kind, text_bytes, payload_bytes

    def close(self) -> None:
        """Close the connection; the peer sees its end."""
        self._sock.close()


def _mac(key: bytes, *parts: bytes | bytearray | memoryview) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        mac.update(part)
    return mac.digest()
