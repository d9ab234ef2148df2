"""Reading a live Arrow IPC stream that may still grow, or was cut anywhere.

A stream is a row of messages, each `0xFFFFFFFF`, the length of its metadata, the metadata
(a flatbuffer) and a body. Arrow's own reader is shown only the messages that are complete,
so it never sees a torn one and can go on when the file has grown.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO, Final

import pyarrow as pa

_CONTINUATION: Final = 0xFFFFFFFF
RECORD_BATCH: Final = 3  # the member of the flatbuffer union `MessageHeader`
_MAX_METADATA: Final = 1 << 28

#: What Arrow raises for bytes that are complete but make no sense.
DAMAGE: Final = (pa.ArrowException, OSError, ValueError, MemoryError, struct.error, IndexError)


class LiveStream:
    """The record batches of one live stream, each returned once.

    `consumed` is the number of bytes that belong to the batches returned so far,
    `torn_bytes` what lies behind them, `closed` whether the writer ended the stream, and
    `problem` why reading stopped before the end, when the bytes are damaged, not just cut.
    What lies behind byte `limit` is not looked at.
    """

    def __init__(self, opener: Callable[[], IO[bytes]], limit: int | None = None) -> None:
        self._opener = opener
        self._limit = limit
        self._source = _Gate()
        self._reader: pa.RecordBatchStreamReader | None = None
        self.consumed = 0
        self.torn_bytes = 0
        self.closed = False
        self.problem: str | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that have become complete. Raises OSError if it cannot be opened."""
        if self.closed or self.problem:
            return
        with closing(self._opener()) as file:
            size = self._size(file)
            for end in self._complete(file, size):
                batch = self._decode(file, end)
                if batch is None:
                    break
                self.consumed = end
                yield batch
            self.torn_bytes = size - self.consumed

    @property
    def metadata(self) -> dict[str, str]:
        """The schema's metadata, empty before the first batch was read."""
        known = self._reader.schema.metadata if self._reader else None
        return {key.decode(): value.decode() for key, value in (known or {}).items()}

    def skim(self) -> None:
        """Find out how far the stream can be read, without decoding it. Raises OSError."""
        with closing(self._opener()) as file:
            size = self._size(file)
            for end in self._complete(file, size):
                self.consumed = end
            self.torn_bytes = size - self.consumed

    @property
    def remark(self) -> str | None:
        """What of the stream could not be read, in a sentence; None when all of it was."""
        if self.problem:
            return f"{self.problem}; {self.torn_bytes} bytes are not read"
        if self.torn_bytes:
            return f"its last {self.torn_bytes} bytes are a batch that was cut or is being written"
        return None

    def _size(self, file: IO[bytes]) -> int:
        size = file.seek(0, io.SEEK_END)
        return size if self._limit is None else min(size, self._limit)

    def _complete(self, file: IO[bytes], size: int) -> Iterator[int]:
        """Yield the end of each complete record batch behind `consumed`."""
        position = self.consumed
        while not self.closed:
            try:
                message = read_message(file, position, size)
            except ValueError as error:
                self.problem = f"damaged at byte {position}: {error}"
                return
            if message is None:
                return
            kind, position = message
            if kind is None:
                self.closed, self.consumed = True, position
            elif kind == RECORD_BATCH:
                yield position

    def _decode(self, file: IO[bytes], end: int) -> pa.RecordBatch | None:
        self._source.show(file, end)
        try:
            if self._reader is None:
                self._reader = pa.ipc.open_stream(self._source)
            batch = self._reader.read_next_batch()
            batch.validate(full=True)
        except StopIteration:
            self.problem = f"damaged before byte {end}: a record batch is missing"
        except DAMAGE as error:
            self.problem = f"damaged before byte {end}: {first_line(error)}"
        else:
            return batch
        return None


class _Gate(io.RawIOBase):
    """A file that ends where the complete messages end, and is swapped as it grows."""

    def __init__(self) -> None:
        super().__init__()
        self._file: IO[bytes] = io.BytesIO()
        self._position = 0
        self._end = 0

    def show(self, file: IO[bytes], end: int) -> None:
        """Let the reader see `file` up to byte `end`."""
        self._file, self._end = file, end

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._position
        self._file.seek(self._position)
        data = self._file.read(left if size < 0 else min(size, left))
        self._position += len(data)
        return data


def read_message(file: IO[bytes], position: int, size: int) -> tuple[int | None, int] | None:
    """Return (kind, end) of the message at `position`, or None when it is not complete.

    Kind None is the end-of-stream mark. Raises ValueError for bytes that are no message.
    """
    if size - position < 8:
        return None
    file.seek(position)
    mark, length = struct.unpack("<Ii", file.read(8))
    if mark != _CONTINUATION or not 0 <= length <= _MAX_METADATA:
        raise ValueError("these bytes are not an Arrow stream")
    start = position + 8
    if length == 0:
        return None, start
    if size - start < length:
        return None
    kind, body = _parse(file.read(length))
    end = start + length + body
    return (kind, end) if end <= size else None


def read_schema(file: IO[bytes]) -> pa.Schema | None:
    """Return the schema a stream begins with, None when it is cut before its end.

    Raises ValueError for bytes that are no Arrow stream.
    """
    size = file.seek(0, io.SEEK_END)
    message = read_message(file, 0, size)
    if message is None or message[0] is None:
        return None
    file.seek(0)
    try:
        return pa.ipc.read_schema(pa.py_buffer(file.read(message[1])))
    except DAMAGE as error:
        raise ValueError(first_line(error)) from error


def _parse(metadata: bytes) -> tuple[int, int]:
    """Return (kind of header, length of the body) of a flatbuffer `Message`."""
    try:
        (table,) = struct.unpack_from("<I", metadata, 0)
        (back,) = struct.unpack_from("<i", metadata, table)
        vtable = table - back
        (vtable_size,) = struct.unpack_from("<H", metadata, vtable)
        kind_at, body_at = (_slot(metadata, vtable, vtable_size, i) for i in (1, 3))
        kind = metadata[table + kind_at] if kind_at else 0
        (body,) = struct.unpack_from("<q", metadata, table + body_at) if body_at else (0,)
    except (struct.error, IndexError) as error:
        raise ValueError("the metadata of a message is damaged") from error
    if body < 0:
        raise ValueError("the metadata of a message is damaged")
    return kind, body


def _slot(metadata: bytes, vtable: int, vtable_size: int, index: int) -> int:
    offset = 4 + 2 * index
    if offset + 2 > vtable_size:
        return 0
    return int(struct.unpack_from("<H", metadata, vtable + offset)[0])


def first_line(error: BaseException) -> str:
    """Return what an error says, in one line, its type where it says nothing."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
