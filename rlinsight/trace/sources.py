"""The live files of a trace: finding them, and reading them as tables of the current schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from rlinsight.trace.clock import Clocks, NodeClock
from rlinsight.trace.folder import Entry, Folder
from rlinsight.trace.process import Process, read_process
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES, TIME_COLUMNS, TableName
from rlinsight.trace.streams_in import LiveStream, read_schema
from rlinsight.trace.upgrade import UnusableTableError, check_version, conform, upgrade

LIVE: Final = "live"
#: Why a file was left out that has no business in a trace.
FOREIGN: Final = "not a file of a trace"
_PROCESS_NAME: Final = re.compile(r"live/process-.+\.json")
_STREAM_NAME: Final = re.compile(r"live/([a-z]+)-(.+?)-(\d+)(?:-\d+)?\.arrows")

#: Small batches are handled together, but no more than this at once.
_GROUP_ROWS: Final = 1 << 17
_GROUP_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class Skipped:
    """A file, or a part of one, that was not used, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class LiveFile:
    """The stream of one process and one table; `name` is relative to the trace folder."""

    name: str
    table: TableName
    node: str
    pid: int
    version: int
    size: int

    @property
    def order(self) -> tuple[str, int, int, str]:
        """What puts files in one order: by process, then as the process began them."""
        return (self.node, self.pid, len(self.name), self.name)


@dataclass
class LiveFolder:
    """What was found in `live/`."""

    files: list[LiveFile] = field(default_factory=list)
    processes: dict[str, Process] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def find_live(folder: Folder) -> LiveFolder:
    """Look through `live/`. Raises TraceError for a stream of a newer schema, OSError."""
    found = LiveFolder()
    for entry in folder.entries(LIVE):
        try:
            _look_at(folder, entry, found)
        except (OSError, ValueError) as error:
            found.skipped.append(Skipped(folder.where(entry.name), why(error)))
    found.files.sort(key=lambda file: file.order)
    return found


def read_tables(
    file: LiveFile, stream: LiveStream, clocks: Clocks, done_bytes: int = 0
) -> Iterator[pa.Table]:
    """Yield the rows behind byte `done_bytes`: current schema, clock corrected.

    Raises OSError when the file cannot be opened, UnusableTableError when its columns do
    not fit.
    """
    clock = clocks.of(file.node)
    batches = (batch for batch in stream.batches() if stream.consumed > done_bytes)
    for table in grouped(batches):
        yield correct_times(file.table, upgrade(file.table, table, file.version), clock)


def open_stream(folder: Folder, file: LiveFile) -> LiveStream:
    """Return the reader of a live file as it was when it was found; nothing is read yet."""
    return LiveStream(lambda: folder.open(file.name), limit=file.size)


def correct_times(name: TableName, table: pa.Table, clock: NodeClock) -> pa.Table:
    """Return the table with its times on the reference clock."""
    if not clock.estimates:
        return table
    for column in TIME_COLUMNS[name]:
        at = table.schema.get_field_index(column)
        corrected = clock.correct(table.column(column))
        table = table.set_column(at, table.schema.field(at), corrected)
    return table


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches of one schema into tables of bounded size."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield joined(group)
            group, rows, size = [], 0, 0
    if group:
        yield joined(group)


def joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return the batches as one table in one piece, with one dictionary per column."""
    return pa.Table.from_batches(batches).combine_chunks()


def empty_table(name: TableName) -> pa.Table:
    """Return a table without rows."""
    return conform(name, TABLES[name].empty_table())


def _look_at(folder: Folder, entry: Entry, found: LiveFolder) -> None:
    """File an entry of `live/`. Raises OSError, ValueError, and TraceError if it is newer."""
    match = _STREAM_NAME.fullmatch(entry.name)
    if entry.is_file and match and match[1] in TABLES:
        found.files.append(_live_file(folder, entry, match))
    elif entry.is_file and _PROCESS_NAME.fullmatch(entry.name):
        with closing(folder.open(entry.name)) as file:
            found.processes[entry.name] = read_process(file.read())
    else:
        raise ValueError(FOREIGN)


def _live_file(folder: Folder, entry: Entry, match: re.Match[str]) -> LiveFile:
    if entry.size == 0:
        raise ValueError("empty")
    with closing(folder.open(entry.name)) as file:
        schema = read_schema(file)
    if schema is None:
        raise ValueError("cut before its first batch")
    metadata: dict[str, str] = {
        key.decode(): value.decode() for key, value in (schema.metadata or {}).items()
    }
    version = int(metadata.get("rlinsight.schema_version", SCHEMA_VERSION))
    check_version(version, folder.where(entry.name))
    table = metadata.get("rlinsight.table", match[1])
    if table not in TABLES:
        raise ValueError(f"unknown table `{table}`")
    _check_columns(table, schema, version)
    return LiveFile(
        name=entry.name,
        table=table,
        node=metadata.get("rlinsight.node", match[2]),
        pid=int(metadata.get("rlinsight.pid", match[3])),
        version=version,
        size=entry.size,
    )


def _check_columns(table: TableName, schema: pa.Schema, version: int) -> None:
    try:
        upgrade(table, schema.empty_table(), version)
    except UnusableTableError as error:
        raise ValueError(str(error)) from error


def why(error: Exception) -> str:
    """Return the reason for which a file is skipped."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return str(error)
