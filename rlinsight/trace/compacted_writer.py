"""Writing a compacted table: bounded batches, one dictionary per column, a time index."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rlinsight.trace.index import INDEX_KEY, BatchTimes, encode_index, index_size
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES, TIME_COLUMN, TableName

_BATCH_BYTES: Final = 32 << 20
_MARK: Final = b"rlinsight.index-goes-here"


class CompactedWriter:
    """Writes sorted rows of one table to `path`. Raises OSError when the disk is full.

    `names` holds, per dictionary column, every value that will come. `max_rows` and
    `max_bytes` bound what will come, so that room for the index can be kept: the schema,
    which carries it, is written before the first batch.
    """

    def __init__(
        self,
        path: Path,
        table: TableName,
        names: Mapping[str, Sequence[str]],
        metadata: Mapping[str, Any],
        *,
        max_rows: int,
        max_bytes: int,
        batch_rows: int,
    ) -> None:
        self._path, self._table = path, table
        self._batch_rows = batch_rows
        self._names = {c: pa.array(values, pa.string()) for c, values in names.items()}
        self._index: list[BatchTimes] = []
        self._pending: list[pa.Table] = []
        self._index_bytes = index_size(2 + max_rows // batch_rows + 2 * max_bytes // _BATCH_BYTES)
        self._schema = TABLES[table].with_metadata(
            {
                "rlinsight.table": table,
                "rlinsight.schema_version": str(SCHEMA_VERSION),
                "rlinsight.sorted_by": TIME_COLUMN[table],
                **{key: json.dumps(value) for key, value in metadata.items()},
                INDEX_KEY: _MARK.ljust(self._index_bytes),
            }
        )
        self._sink = pa.OSFile(str(path), "wb")
        options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=3))
        self._writer = pa.ipc.new_file(self._sink, self._schema, options=options)

    def write(self, rows: pa.Table) -> None:
        """Append rows, which must not begin earlier than those before."""
        self._pending.append(rows)
        if sum(part.num_rows for part in self._pending) >= self._batch_rows:
            self._write_pending(last=False)

    def finish(self) -> int:
        """Write the rest and the index, force it to disk, and return the number of rows."""
        self._write_pending(last=True)
        self._writer.close()
        self._sink.close()
        self._put_index()
        return sum(entry.rows for entry in self._index)

    def abandon(self) -> None:
        """Close the file without finishing it."""
        try:
            self._sink.close()
        except (OSError, pa.ArrowException):
            pass

    def _write_pending(self, *, last: bool) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables(self._pending).combine_chunks()
        at = 0
        while rows.num_rows - at >= (1 if last else self._batch_rows):
            piece = rows.slice(at, self._batch_rows)
            piece = piece.slice(0, max(1, _fitting_rows(piece)))
            self._write_batch(piece)
            at += piece.num_rows
        self._pending = [rows.slice(at)] if at < rows.num_rows else []

    def _write_batch(self, rows: pa.Table) -> None:
        columns = [
            _recode(rows.column(field.name), self._names[field.name])
            if field.name in self._names
            else rows.column(field.name)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema).combine_chunks()
        (batch,) = table.to_batches()
        self._writer.write_batch(batch)
        self._index.append(BatchTimes.of(self._table, batch))

    def _put_index(self) -> None:
        """Write the index over its placeholder, in the schema at the head and in the footer."""
        try:
            index = encode_index(self._index, self._index_bytes)
        except ValueError:  # far more batches than sizes foretold: readable, without index
            index = b"null".ljust(self._index_bytes)
        with self._path.open("r+b") as file:
            for at in _find_twice(file):
                file.seek(at)
                file.write(index)
            file.flush()
            os.fsync(file.fileno())


def _find_twice(file: IO[bytes]) -> Iterable[int]:
    """Return where the placeholder stands: in the first message, and in the footer."""
    file.seek(0, os.SEEK_END)
    size = file.tell()
    file.seek(size - 10)
    footer = int.from_bytes(file.read(4), "little")
    file.seek(8 + 4)
    header = int.from_bytes(file.read(4), "little")
    places = []
    for start, span in ((16, header), (size - 10 - footer, footer)):
        file.seek(start)
        at = file.read(span).find(_MARK)
        if at < 0:
            raise OSError("the placeholder of the time index was not found")
        places.append(start + at)
    return places


def _fitting_rows(rows: pa.Table) -> int:
    """Return how many of the rows make a batch of bounded size."""
    size = rows.nbytes
    return int(rows.num_rows if size <= _BATCH_BYTES else rows.num_rows * _BATCH_BYTES // size)


def _recode(column: pa.ChunkedArray, names: pa.StringArray) -> pa.Array:
    """Return the column with `names` as its dictionary."""
    chunks = []
    for chunk in column.chunks:
        place = pc.index_in(chunk.dictionary, names).cast(pa.int32())
        indices = place.take(chunk.indices)
        chunks.append(pa.DictionaryArray.from_arrays(indices, names))
    kind = pa.dictionary(pa.int32(), pa.string())
    return pa.concat_arrays(chunks) if chunks else pa.array([], kind)
