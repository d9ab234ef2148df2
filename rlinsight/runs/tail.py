"""Read Arrow IPC streams while they grow, without reading anything twice.

pyarrow's stream reader can go on after an end of file, but not after half a message. So it
is given a file that ends where the last complete batch ends.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

import pyarrow as pa

_PREFIX: Final = struct.Struct("<Ii")  # continuation mark, size of the metadata
_CONTINUATION: Final = 0xFFFFFFFF
#: Fields of the flatbuffer table `Message`, and the header type of a batch of rows.
_HEADER_TYPE_FIELD: Final = 1
_BODY_LENGTH_FIELD: Final = 3
_RECORD_BATCH: Final = 3


class StreamTail:
    """The batches that have been appended to one stream file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._complete = _CompleteMessages(path)
        self._reader: pa.RecordBatchStreamReader | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield new batches; a torn or foreign file yields none."""
        try:
            with self._complete.opened() as has_new:
                if not has_new:
                    return
                if self._reader is None:
                    source = pa.PythonFile(cast("BinaryIO", self._complete), mode="r")
                    self._reader = pa.ipc.open_stream(source)
                while True:
                    yield self._reader.read_next_batch()
        except StopIteration:
            return
        except (pa.ArrowException, OSError, struct.error):
            self._complete.give_up()

    @property
    def process(self) -> tuple[str, int]:
        """Node and pid of the process that writes the stream; to be asked after a batch."""
        metadata = self._reader.schema.metadata or {} if self._reader else {}
        pid = metadata.get(b"rlinsight.pid", b"0")
        return metadata.get(b"rlinsight.node", b"").decode(), int(pid)


class _CompleteMessages(io.RawIOBase):
    """A file that ends where the last complete record batch ends."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._fd = -1
        self._position = self._limit = self._scanned = 0
        self._given_up = False

    @contextmanager
    def opened(self) -> Iterator[bool]:
        """Open the file for the duration, and tell whether it has new complete batches.

        A large run has thousands of streams, more than a process may hold open.
        """
        if self._given_up or self._path.stat().st_size <= self._scanned:
            yield False
            return
        self._fd = os.open(self._path, os.O_RDONLY)
        try:
            yield self._advance()
        finally:
            os.close(self._fd)

    def _advance(self) -> bool:
        """Show the batches that are complete by now; return whether there are new ones.

        Schema and dictionaries are shown together with the batch that follows them: the
        reader wants all initial dictionaries at once.
        """
        size, before = os.fstat(self._fd).st_size, self._limit
        while (message := next_message(self._fd, self._scanned, size)) is not None:
            self._scanned = message.end
            if message.is_batch:
                self._limit = message.end
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


class Message(NamedTuple):
    """Where an IPC message ends in its file, and whether it carries rows."""

    end: int
    is_batch: bool


def next_message(fd: int, start: int, size: int) -> Message | None:
    """Return the message that begins at byte `start`, or None if it is not all there.

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
    body_size = _field(metadata, _BODY_LENGTH_FIELD, "<q")
    end = start + _PREFIX.size + metadata_size + body_size
    is_batch = _field(metadata, _HEADER_TYPE_FIELD, "<B") == _RECORD_BATCH
    return Message(end, is_batch) if end <= size else None


def _field(metadata: bytes, number: int, kind: str) -> int:
    """Return a scalar field of the flatbuffer table `Message`; 0, its default, if left out."""
    (root,) = struct.unpack_from("<I", metadata, 0)
    (back,) = struct.unpack_from("<i", metadata, root)
    table = root - back
    (table_size,) = struct.unpack_from("<H", metadata, table)
    entry = 4 + 2 * number
    if entry >= table_size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, table + entry)
    (value,) = struct.unpack_from(kind, metadata, root + offset) if offset else (0,)
    return int(value)
