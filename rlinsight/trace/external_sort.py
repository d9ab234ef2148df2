"""Sorting a table that is larger than memory.

Two passes over the sources: `survey` counts, collects the names, and samples the times;
`sort_into` parts the rows into time ranges that each fit in memory, and settles and writes
one range after the other. Rows that belong together have the same start, so they meet in
one range: an open row and the row that closes it. Samples are merged first, parted by uid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from rlinsight.trace.buckets import Buckets, hash_bucket, time_bucket
from rlinsight.trace.rows import merge_samples, settle, start_times
from rlinsight.trace.schema import TABLES, TableName

_PROCESS: Final = "process"
_SAMPLED_EVERY: Final = 1024  # rows


class Part(Protocol):
    """One source of rows, which can be read several times."""

    process: int

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows, of the current schema and with clocks corrected."""


class Sink(Protocol):
    """Where sorted rows go."""

    def write(self, rows: pa.Table) -> None:
        """Take the next rows."""


@dataclass
class Survey:
    """What the first pass found: names per dictionary column, sizes, some of the times.

    `held` are the rows themselves when they fit in memory, with their process.
    """

    rows: int = 0
    bytes: int = 0
    names: dict[str, list[str]] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    held: list[pa.Table] | None = field(default_factory=list)

    def bounds(self, memory_bytes: int) -> list[int]:
        """Return the times that part the rows into ranges of at most about that many bytes."""
        ranges = -(-self.bytes // max(1, memory_bytes))
        times = sorted(self.times)
        if ranges < 2 or not times:
            return []
        return sorted({times[i * len(times) // ranges] for i in range(1, ranges)})


def survey(name: TableName, parts: Sequence[Part], memory_bytes: int) -> Survey:
    """Read all rows once; hold them if they take up to `memory_bytes`. Raises OSError."""
    found = Survey()
    seen: dict[str, dict[str, None]] = {
        f.name: {} for f in TABLES[name] if pa.types.is_dictionary(f.type)
    }
    for table in _labelled(parts):
        found.rows += table.num_rows
        found.bytes += table.nbytes
        every = pa.array(range(0, table.num_rows, _SAMPLED_EVERY), pa.int64())
        found.times.extend(start_times(name, table).take(every).drop_null().to_pylist())
        for column, values in seen.items():
            for chunk in table.column(column).chunks:
                values.update(dict.fromkeys(chunk.dictionary.drop_null().to_pylist()))
        if found.bytes > memory_bytes:
            found.held = None
        if found.held is not None:
            found.held.append(table)
    found.names = {column: list(values) for column, values in seen.items()}
    return found


def sort_into(
    sink: Sink,
    name: TableName,
    parts: Sequence[Part],
    found: Survey,
    folder: Path,
    memory_bytes: int,
) -> None:
    """Write all rows of `parts` to `sink`, settled and in time order. Raises OSError.

    Holds about `memory_bytes` of rows at once; temporary files go to `folder`.
    """
    if found.held is not None:
        if found.held:
            sink.write(_settled(name, pa.concat_tables(found.held).combine_chunks()))
        return
    rows = _labelled(parts)
    if name == "samples":
        rows = _merged(rows, found, folder, memory_bytes)
    bounds = found.bounds(memory_bytes)
    buckets = Buckets(folder, "time", len(bounds) + 2, memory_bytes)
    for table in rows:
        buckets.scatter(table, time_bucket(start_times(name, table), bounds))
    for bucket in buckets.take():
        if bucket is not None:
            sink.write(_settled(name, bucket))


def _merged(
    rows: Iterator[pa.Table], found: Survey, folder: Path, memory_bytes: int
) -> Iterator[pa.Table]:
    """Yield the samples merged, in no order."""
    count = -(-found.bytes // max(1, memory_bytes))
    buckets = Buckets(folder, "uid", count, memory_bytes)
    for table in rows:
        buckets.scatter(table, hash_bucket(table.column("sample_uid"), count))
    for bucket in buckets.take():
        if bucket is not None:
            yield merge_samples(bucket)


def _labelled(parts: Sequence[Part]) -> Iterator[pa.Table]:
    """Yield the rows with the process they come from as one more column."""
    for part in parts:
        for table in part.tables():
            process: Any = pa.repeat(pa.scalar(part.process, pa.int32()), table.num_rows)
            yield table.append_column(_PROCESS, process)


def _settled(name: TableName, table: pa.Table) -> pa.Table:
    process = table.column(_PROCESS).combine_chunks()
    return settle(name, table.drop_columns([_PROCESS]), process)
