"""Weights as frames: a JSON list that says what lies where, and the tensors' own bytes.

Bytes are copied as they are, so every dtype arrives bit by bit, bfloat16 and float8 included.
A tensor larger than a frame travels in several parts, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rlinsight.runs.cpu.transport.errors import WeightSyncError

#: Every tensor of a frame starts at a multiple of it, so that it can be viewed in place.
ALIGNMENT_BYTES = 64
MAX_TENSOR_BYTES = 1 << 38
_MAX_DIMENSIONS = 16

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bfloat16, torch.float16, torch.float32, torch.float64,
        torch.float8_e4m3fn, torch.float8_e5m2,
        torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class Bucket:
    """The text and payload of one frame."""

    entries: list[dict[str, Any]]
    payload: bytearray


class Packer:
    """Fills frames of at most `bucket_bytes` with tensors."""

    def __init__(self, bucket_bytes: int) -> None:
        self._limit = max(bucket_bytes, ALIGNMENT_BYTES)
        self._bucket = Bucket([], bytearray())

    def add(self, name: str, tensor: torch.Tensor) -> Iterator[Bucket]:
        """Take a tensor; yield every frame that it completes."""
        if tensor.dtype not in _NAMES:
            raise WeightSyncError(f"`{name}` has dtype {tensor.dtype}, which cannot be sent")
        raw = _raw_bytes(tensor)
        start = 0
        while True:
            if self._full(len(raw) - start):
                yield self.flush()
            start = self._append(name, tensor, raw, start)
            if start == len(raw):
                return

    def flush(self) -> Bucket:
        """Return what has been taken and not been yielded, perhaps nothing."""
        done, self._bucket = self._bucket, Bucket([], bytearray())
        return done

    def _full(self, more_bytes: int) -> bool:
        used = _aligned(len(self._bucket.payload))
        return bool(self._bucket.entries) and used + more_bytes > self._limit

    def _append(self, name: str, tensor: torch.Tensor, raw: memoryview, start: int) -> int:
        payload = self._bucket.payload
        payload.extend(bytes(_aligned(len(payload)) - len(payload)))
        part = raw[start : start + self._limit - len(payload)]
        self._bucket.entries.append(
            {
                "name": name,
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "offset": len(payload),
                "bytes": len(part),
                "start": start,
            }
        )
        payload.extend(part)
        return start + len(part)


class Unpacker:
    """Turns frames back into named tensors, and refuses frames that contradict themselves."""

    def __init__(self) -> None:
        self._partial: tuple[str, torch.Tensor, int] | None = None
        self.tensors = self.bytes = 0

    def take(self, entries: Any, payload: bytearray) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each tensor that the frame completes; it may be a view into `payload`."""
        if not isinstance(entries, list):
            raise WeightSyncError(f"expected a list of tensors, found {type(entries).__name__}")
        for raw_entry in entries:
            entry = _Entry.parse(raw_entry, len(payload))
            tensor = self._whole(entry, payload) if entry.whole else self._part(entry, payload)
            if tensor is not None:
                self.tensors += 1
                self.bytes += entry.total_bytes
                yield entry.name, tensor

    def _whole(self, entry: _Entry, payload: bytearray) -> torch.Tensor:
        if self._partial is not None:
            raise WeightSyncError(f"`{entry.name}` came before all of `{self._partial[0]}`")
        return entry.view(entry.slice_of(payload))

    def _part(self, entry: _Entry, payload: bytearray) -> torch.Tensor | None:
        name, buffer, done = self._partial or (
            entry.name, torch.empty(entry.total_bytes, dtype=torch.uint8), 0
        )  # fmt: skip
        if (name, len(buffer), done) != (entry.name, entry.total_bytes, entry.start):
            raise WeightSyncError(f"expected `{name}` from byte {done}, found `{entry.name}`")
        done += entry.bytes
        buffer[entry.start : done] = entry.slice_of(payload)
        self._partial = None if done == entry.total_bytes else (name, buffer, done)
        return entry.view(buffer) if self._partial is None else None

    def finish(self, totals: Any) -> None:
        """Check against what the sender says it sent; raises WeightSyncError."""
        received = {"tensors": self.tensors, "bytes": self.bytes}
        if self._partial is not None or totals != received:
            raise WeightSyncError(f"the trainer sent {totals}, received {received}")


@dataclass(frozen=True)
class _Entry:
    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    bytes: int
    start: int

    @staticmethod
    def parse(raw: Any, payload_bytes: int) -> _Entry:
        try:
            shape = tuple(raw["shape"])
            numbers = (*shape, raw["offset"], raw["bytes"], raw["start"])
            if not all(type(n) is int and n >= 0 for n in numbers) or len(shape) > _MAX_DIMENSIONS:
                raise ValueError("sizes must be whole and not negative")
            entry = _Entry(str(raw["name"]), DTYPES[raw["dtype"]], shape, *numbers[len(shape) :])
        except (KeyError, TypeError, ValueError) as error:
            raise WeightSyncError(f"a frame describes no tensor: {error!r}") from None
        entry.check(payload_bytes)
        return entry

    def check(self, payload_bytes: int) -> None:
        inside = self.offset + self.bytes <= payload_bytes and not self.offset % ALIGNMENT_BYTES
        fits = self.start + self.bytes <= self.total_bytes <= MAX_TENSOR_BYTES
        if not (inside and fits and (self.bytes or not self.total_bytes)):
            raise WeightSyncError(f"`{self.name}` does not fit its frame or its own size")

    @property
    def total_bytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def whole(self) -> bool:
        return self.bytes == self.total_bytes

    def slice_of(self, payload: bytearray) -> torch.Tensor:
        if not self.bytes:
            return torch.empty(0, dtype=torch.uint8)
        view = memoryview(payload)[self.offset : self.offset + self.bytes]
        return torch.frombuffer(view, dtype=torch.uint8)

    def view(self, raw: torch.Tensor) -> torch.Tensor:
        return raw.view(self.dtype).view(self.shape)


def _raw_bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy())


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
