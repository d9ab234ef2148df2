"""A compacted table whose footer is torn: its record batches, found as those of a stream.

An Arrow file is `ARROW1`, two zeros, a stream (schema, dictionaries, record batches), and a footer
that says where the batches lie. Where the footer is gone, the stream before it can still be
walked from its begin, message by message, and each batch be decoded by itself. What the format does
not allow: to read any batch without the schema and the dictionaries at the head, and to find what
lies behind a message whose own metadata is damaged, since only that says how long it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Final

import pyarrow as pa

from rlinsight.trace.streams_in import DAMAGE, RECORD_BATCH, first_line, read_message

_HEAD: Final = 8  # `ARROW1` and two zeros
_MOST_HEAD_BYTES: Final = 1 << 30

Span = tuple[int, int]


@dataclass(frozen=True)
class Torn:
    """Where schema and dictionaries (`head`) and each whole record batch lie, in bytes.

    `end` is how far the file makes sense, `reason` why its footer was not used.
    """

    schema: pa.Schema
    head: Span
    batches: tuple[Span, ...]
    end: int
    reason: str

    def batch(self, file: IO[bytes], number: int, options: pa.ipc.IpcReadOptions) -> pa.RecordBatch:
        """Return one record batch. Raises OSError or an ArrowException where it is damaged."""
        data = b"".join(_bytes(file, span) for span in (self.head, self.batches[number]))
        return pa.ipc.open_stream(pa.py_buffer(data), options=options).read_next_batch()


def find_batches(file: IO[bytes], size: int, reason: str) -> Torn:
    """Walk the messages of a table. Raises ValueError where it has no schema that can be read."""
    schema_end: int | None = None
    head_end = position = _HEAD
    batches: list[Span] = []
    while True:
        try:
            message = read_message(file, position, size)
        except ValueError:
            break
        if message is None or message[0] is None:
            break
        kind, end = message
        if kind == RECORD_BATCH:
            batches.append((position, end))
        elif batches:
            break  # dictionaries come first in our tables
        else:
            schema_end, head_end = schema_end or end, end
        position = end
    if schema_end is None or head_end > _MOST_HEAD_BYTES:
        raise ValueError(f"damaged: {reason}; its head cannot be read either")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(_bytes(file, (_HEAD, schema_end))))
    except DAMAGE as error:
        raise ValueError(f"damaged: {reason}; nor its head: {first_line(error)}") from error
    return Torn(schema, (_HEAD, head_end), tuple(batches), position, reason)


def is_damage(error: Exception) -> bool:
    """Whether an error is about the bytes of a file, not about reaching them.

    Arrow calls damage an OSError too; one of the system has a number, or a type of its own.
    """
    return not isinstance(error, OSError) or (type(error) is OSError and not error.errno)


def _bytes(file: IO[bytes], span: Span) -> bytes:
    file.seek(span[0])
    return file.read(span[1] - span[0])
