"""A compacted table: one Arrow file, sorted by time, with its time index in the metadata."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import IO, Any, Final

import pyarrow as pa

from rlinsight.errors import TraceError
from rlinsight.trace.damage import batches_lost, footer_lost
from rlinsight.trace.folder import Folder, arrow_file
from rlinsight.trace.index import BatchTimes, decode_index, overlapping
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES, TableName
from rlinsight.trace.streams_in import first_line
from rlinsight.trace.torn import Torn, find_batches, is_damage
from rlinsight.trace.upgrade import UnusableTableError, check_version, conform, upgrade

SOURCES_KEY: Final = "rlinsight.sources"
_TAIL_BYTES: Final = 4096
_Read = Callable[[int], pa.RecordBatch]


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
        known = {one.name for one in fields(cls)}
        return cls(**{key: value for key, value in stored.items() if key in known})


@dataclass(frozen=True)
class CompactedTable:
    """A compacted table whose header was read. `index` is None when the file has none.

    `torn` says where the batches lie when its footer cannot be read. `damage` is why a batch
    is left out, of those that were found damaged so far; `check` finds them all.
    """

    folder: Folder
    name: TableName
    version: int
    size: int
    columns: tuple[str, ...]
    batch_count: int
    index: tuple[BatchTimes, ...] | None
    sources: tuple[Source, ...]
    torn: Torn | None = None
    damage: dict[int, str] = field(default_factory=dict)

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
        """Return all rows that can be read, settled and in order. Raises TraceError."""
        empty = conform(self.name, TABLES[self.name].empty_table())
        return pa.concat_tables([empty, *self.tables()])

    def tables(
        self, columns: Sequence[str] | None = None, window: tuple[int, int] | None = None
    ) -> Iterator[pa.Table]:
        """Yield the batches that `window` needs, with only `columns`, in order.

        Rows outside the window are still among them; batches that are damaged are not, and
        `damage` says so from then on. Raises TraceError when the file cannot be read.
        """
        try:
            yield from self._tables(columns, window)
        except (OSError, pa.ArrowException) as error:
            where = self.folder.where(self.file)
            raise TraceError(f"cannot read `{where}`: {first_line(error)}") from error

    def check(self) -> None:
        """Read every batch once, so that `damage` is complete. Raises TraceError."""
        for _ in self.tables():
            pass

    @property
    def remark(self) -> str | None:
        """What of the table is not used, in a sentence; None when all of it is.

        None too for a batch that nobody has read yet.
        """
        said: list[str] = []
        if self.torn is not None:
            known = self.index is not None
            said.append(footer_lost(self.name, self.torn, self.size, rows_known=known))
        if self.damage:
            said.append(batches_lost(self.name, self.damage, self.batch_count, self.index))
        return "; ".join(said) or None

    def _tables(
        self, columns: Sequence[str] | None, window: tuple[int, int] | None
    ) -> Iterator[pa.Table]:
        wanted = list(TABLES[self.name].names if columns is None else columns)
        numbers = self.batch_numbers(window)
        with self._batches(self._options(wanted)) as read:
            for number in numbers:
                batch = None if number in self.damage else self._whole(read, number)
                if batch is None:
                    continue
                table = pa.Table.from_batches([batch])
                if self._is_current:
                    yield table.select(wanted).replace_schema_metadata(None)
                else:
                    yield upgrade(self.name, table, self.version).select(wanted)

    @contextmanager
    def _batches(self, options: pa.ipc.IpcReadOptions) -> Iterator[_Read]:
        """Open the file; what is yielded returns a batch by its number."""
        torn = self.torn
        if torn is not None:
            with closing(self.folder.open(self.file)) as file:
                yield lambda number: torn.batch(file, number, options)
            return
        with closing(self.folder.open_arrow(self.file)) as source:
            yield pa.ipc.open_file(source, options=options).get_batch

    def _whole(self, read: _Read, number: int) -> pa.RecordBatch | None:
        """Return a batch, None after noting why where it is damaged. Raises OSError."""
        try:
            batch = read(number)
            # A damaged index into a dictionary or a text would be followed out of bounds.
            batch.validate(full=True)
        except (OSError, pa.ArrowException) as error:
            if not is_damage(error):
                raise
            self.damage[number] = first_line(error)
            return None
        if self.index is not None and batch.num_rows != self.index[number].rows:
            said = self.index[number].rows
            self.damage[number] = f"{said} rows by the index, {batch.num_rows} by itself"
            return None
        return batch

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

    Raises TraceError for a newer schema, ValueError when nothing of the file can be read, OSError.
    """
    file = f"{name}.arrow"
    try:
        with arrow_file(folder, file) as reader:
            schema, batch_count = reader.schema, reader.num_record_batches
        return _table(folder, name, size, schema, batch_count)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        if not is_damage(error):
            raise
        with closing(folder.open(file)) as opened:
            torn = find_batches(opened, size, first_line(error))
    try:
        return _table(folder, name, size, torn.schema, len(torn.batches), torn)
    except TypeError as error:
        raise ValueError(f"damaged: {first_line(error)}") from error


def _table(
    folder: Folder,
    name: TableName,
    size: int,
    schema: pa.Schema,
    found: int,
    torn: Torn | None = None,
) -> CompactedTable:
    """Return the table that a schema says. Raises ValueError and TypeError for a damaged one."""
    metadata = {key.decode(): value for key, value in (schema.metadata or {}).items()}
    version = int(metadata.get("rlinsight.schema_version", SCHEMA_VERSION))
    check_version(version, folder.where(f"{name}.arrow"))
    try:
        upgrade(name, schema.empty_table(), version)
    except UnusableTableError as error:
        raise ValueError(str(error)) from error
    index = decode_index(schema)
    # Without its footer, a file may end before its last batches.
    count = len(index) if torn is not None and index is not None else found
    return CompactedTable(
        folder=folder,
        name=name,
        version=version,
        size=size,
        columns=tuple(schema.names),
        batch_count=max(count, found),
        index=index if index is not None and len(index) == max(count, found) else None,
        sources=tuple(map(Source.from_dict, _parsed(metadata.get(SOURCES_KEY)))),
        torn=torn,
        damage=dict.fromkeys(range(found, count), "it lies behind the tear"),
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
