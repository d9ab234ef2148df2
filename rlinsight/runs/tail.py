"""Read Arrow IPC streams while they grow, without reading anything twice.

pyarrow's stream reader can go on after an end of file, but not after half a message. So it
is given a file that ends where the last complete message ends.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa

_PREFIX: Final = struct.Struct("<Ii")  # continuation mark, size of the metadata
_CONTINUATION: Final = 0xFFFFFFFF
#: `bodyLength` is the fourth field of the flatbuffer table `Message`.
_BODY_LENGTH_FIELD: Final = 3


class StreamTail:
    """The batches that have been appended to one stream file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._complete = _CompleteMessages(path)
        self._reader: pa.RecordBatchStreamReader | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield new batches; a torn or foreign file yields none."""
        try:
            if not self._complete.advance():
                return
            if self._reader is None:
                self._reader = pa.ipc.open_stream(
                    pa.PythonFile(cast("BinaryIO", self._complete), mode="r")
                )
            while True:
                yield self._reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError, struct.error):
            self._complete.give_up()

    def close(self) -> None:
        """Close the file."""
        self._complete.close()


class _CompleteMessages(io.RawIOBase):
    """A file that shows only whole IPC messages."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._fd = os.open(path, os.O_RDONLY)
        self._position = self._limit = 0
        self._given_up = False

    def advance(self) -> bool:
        """Show the messages that are complete by now; return whether there are new ones."""
        if self._given_up:
            return False
        size = os.fstat(self._fd).st_size
        before = self._limit
        while (end := message_end(self._fd, self._limit, size)) is not None:
            self._limit = end
        return self._limit > before

    def give_up(self) -> None:
        """Show nothing more: what follows cannot be understood."""
        self._given_up = True

    def readable(self) -> bool:
        """Return that the file can be read."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes of the complete messages."""
        left = self._limit - self._position
        data = os.pread(self._fd, left if size < 0 else min(size, left), self._position)
        self._position += len(data)
        return data

    def close(self) -> None:
        """Close the descriptor."""
        if not self.closed:
            os.close(self._fd)
        super().close()


def message_end(fd: int, start: int, size: int) -> int | None:
    """Return where the message that begins at byte `start` ends, or None if it is not all there.

    The end-of-stream mark is no message.
    """
    head = os.pread(fd, _PREFIX.size, start)
    if len(head) < _PREFIX.size:
        return None
    mark, metadata_size = _PREFIX.unpack(head)
    if mark != _CONTINUATION or metadata_size <= 0:
        return None
    metadata = os.pread(fd, metadata_size, start + _PREFIX.size)
    if len(metadata) < metadata_size:
        return None
    end = start + _PREFIX.size + metadata_size + _body_length(metadata)
    return end if end <= size else None


def _body_length(metadata: bytes) -> int:
    (root,) = struct.unpack_from("<I", metadata, 0)
    (back,) = struct.unpack_from("<i", metadata, root)
    table = root - back
    (table_size,) = struct.unpack_from("<H", metadata, table)
    entry = 4 + 2 * _BODY_LENGTH_FIELD
    if entry >= table_size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, table + entry)
    if offset == 0:
        return 0
    (length,) = struct.unpack_from("<q", metadata, root + offset)
    return int(length)
