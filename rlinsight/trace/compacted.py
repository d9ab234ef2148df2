"""A compacted table: one Arrow file, sorted by time, with its time index in the metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import IO, Any, Final

import pyarrow as pa

from rlinsight.errors import TraceError
from rlinsight.trace.folder import Folder, arrow_file
from rlinsight.trace.index import BatchTimes, decode_index, overlapping
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES, TableName
from rlinsight.trace.upgrade import UnusableTableError, check_version, conform, upgrade

SOURCES_KEY: Final = "rlinsight.sources"
_TAIL_BYTES: Final = 4096


@dataclass(frozen=True)
class Source:
    """A live file that went into a compacted table, up to byte `bytes` of its then `size`.

    `tail`, a digest of the bytes before that, proves that it is the same file. `damage` says
    why not all of it went in.
    """

    file: str
    bytes: int
    size: int
    tail: str
    damage: str | None = None

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Source:
        """Read what was stored; keys that only a later version knows are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in stored.items() if key in known})


@dataclass(frozen=True)
class CompactedTable:
    """A compacted table whose header was read. `index` is None when the file has none."""

    folder: Folder
    name: TableName
    version: int
    size: int
    columns: tuple[str, ...]
    batch_count: int
    index: tuple[BatchTimes, ...] | None
    sources: tuple[Source, ...]

    @property
    def file(self) -> str:
        """The file's name in the trace folder."""
        return f"{self.name}.arrow"

    def batch_numbers(self, window: tuple[int, int] | None) -> list[int]:
        """Return the batches that a window needs: all of them when there is no index."""
        if self.index is None:
            return list(range(self.batch_count))
        return overlapping(self.index, window)

    def load(self) -> pa.Table:
        """Return all rows, which are settled and in order. Raises TraceError."""
        empty = conform(self.name, TABLES[self.name].empty_table())
        return pa.concat_tables([empty, *self.tables()])

    def tables(
        self, columns: Sequence[str] | None = None, window: tuple[int, int] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the batches that `window` needs, with only `columns`, in order.

        Rows outside the window are still among them. Raises TraceError when the file is damaged
        or cannot be read.
        """
        try:
            yield from self._tables(columns, window)
        except (OSError, pa.ArrowException) as error:
            where = self.folder.where(self.file)
            reason = str(error).splitlines()[0]
            raise TraceError(f"cannot read `{where}`, it is damaged: {reason}") from error

    def _tables(
        self, columns: Sequence[str] | None, window: tuple[int, int] | None
    ) -> Iterator[pa.Table]:
        wanted = list(TABLES[self.name].names if columns is None else columns)
        numbers = self.batch_numbers(window)
        with closing(self.folder.open_arrow(self.file)) as source:
            reader = pa.ipc.open_file(source, options=self._options(wanted))
            for number in numbers:
                batch = reader.get_batch(number)
                # A damaged index into a dictionary or a text would be followed out of bounds.
                batch.validate(full=True)
                table = pa.Table.from_batches([batch])
                if self._is_current:
                    yield table.select(wanted).replace_schema_metadata(None)
                else:
                    yield upgrade(self.name, table, self.version).select(wanted)

    @property
    def _is_current(self) -> bool:
        return self.version == SCHEMA_VERSION and self.columns == tuple(TABLES[self.name].names)

    def _options(self, wanted: list[str]) -> pa.ipc.IpcReadOptions:
        if not self._is_current:  # an upgrade may need any column
            return pa.ipc.IpcReadOptions()
        fields = [self.columns.index(name) for name in wanted]
        return pa.ipc.IpcReadOptions(included_fields=sorted(fields))


def open_compacted(folder: Folder, name: TableName, size: int) -> CompactedTable:
    """Read the header of `<name>.arrow`.

    Raises TraceError for a newer schema, ValueError when the file is damaged, OSError.
    """
    file = f"{name}.arrow"
    try:
        with arrow_file(folder, file) as reader:
            schema, batch_count = reader.schema, reader.num_record_batches
    except pa.ArrowException as error:
        raise ValueError(f"damaged: {str(error).splitlines()[0]}") from error
    metadata = {key.decode(): value for key, value in (schema.metadata or {}).items()}
    version = int(metadata.get("rlinsight.schema_version", SCHEMA_VERSION))
    check_version(version, folder.where(file))
    try:
        upgrade(name, schema.empty_table(), version)
    except UnusableTableError as error:
        raise ValueError(str(error)) from error
    index = decode_index(schema)
    fits = index is not None and len(index) == batch_count
    return CompactedTable(
        folder=folder,
        name=name,
        version=version,
        size=size,
        columns=tuple(schema.names),
        batch_count=batch_count,
        index=index if fits else None,
        sources=tuple(map(Source.from_dict, _parsed(metadata.get(SOURCES_KEY)))),
    )


def source_of(folder: Folder, file: str, compacted: CompactedTable | None) -> Source | None:
    """Return how far a live file went into the compacted table, None if it did not at all.

    Raises OSError.
    """
    for source in compacted.sources if compacted else ():
        if source.file == file:
            with closing(folder.open(file)) as opened:
                if tail_digest(opened, source.bytes) == source.tail:
                    return source
    return None


def tail_digest(file: IO[bytes], end: int) -> str:
    """Return a digest of the bytes before byte `end`, to recognize a file by."""
    start = max(0, end - _TAIL_BYTES)
    file.seek(start)
    return blake2b(file.read(end - start), digest_size=16).hexdigest()


def _parsed(text: bytes | None) -> list[dict[str, Any]]:
    return list(json.loads(text)) if text else []
