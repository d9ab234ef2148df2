"""The time index of a compacted table: for each record batch, the time it covers.

It is stored in the schema metadata of the Arrow file, key `rlinsight.index`, and so is read
with the file's footer. A window needs only the batches that `overlapping` names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rlinsight.trace.rows import end_times, start_times
from rlinsight.trace.schema import TableName

INDEX_KEY: Final = "rlinsight.index"

#: Bytes one entry takes at most as JSON: four numbers, three of up to 20 digits.
_ENTRY_BYTES: Final = 4 * 22


@dataclass(frozen=True)
class BatchTimes:
    """What one record batch covers, in ns.

    `first_ns` is its earliest start and `last_ns` its latest known time, both None when no
    row has a time. `open_rows` counts rows without end, which reach to the end of the trace.
    """

    rows: int
    first_ns: int | None
    last_ns: int | None
    open_rows: int

    @classmethod
    def of(cls, name: TableName, batch: pa.RecordBatch | pa.Table) -> BatchTimes:
        """Measure a batch of the current schema."""
        starts, ends = start_times(name, batch), end_times(name, batch)
        earliest, latest = pc.min_max(starts).as_py().values()
        ended = pc.max(ends).as_py()
        known = [time for time in (latest, ended) if time is not None]
        return cls(batch.num_rows, earliest, max(known, default=None), ends.null_count)

    def overlaps(self, window: tuple[int, int]) -> bool:
        """Whether a row of the batch may overlap the window [start, end)."""
        if self.first_ns is None or self.first_ns >= window[1]:
            return False
        return self.open_rows > 0 or self.last_ns is None or self.last_ns >= window[0]


def overlapping(index: Sequence[BatchTimes], window: tuple[int, int] | None) -> list[int]:
    """Return the numbers of the batches a window needs; all of them for None."""
    if window is None:
        return list(range(len(index)))
    return [number for number, entry in enumerate(index) if entry.overlaps(window)]


def encode_index(index: Sequence[BatchTimes], size: int) -> bytes:
    """Return the index as JSON, padded with blanks to `size` bytes."""
    text = json.dumps(
        {
            "rows": [entry.rows for entry in index],
            "first_ns": [entry.first_ns for entry in index],
            "last_ns": [entry.last_ns for entry in index],
            "open_rows": [entry.open_rows for entry in index],
        },
        separators=(",", ":"),
    ).encode()
    if len(text) > size:
        raise ValueError(f"the time index takes {len(text)} bytes, {size} were reserved")
    return text.ljust(size)


def index_size(batches: int) -> int:
    """Return how many bytes the index of up to `batches` batches takes at most."""
    return 100 + _ENTRY_BYTES * batches


def decode_index(schema: pa.Schema) -> tuple[BatchTimes, ...] | None:
    """Return the index in a file's schema metadata, None when there is none that is usable."""
    try:
        data: dict[str, Any] = json.loads((schema.metadata or {})[INDEX_KEY.encode()])
        columns = [data[key] for key in BatchTimes.__dataclass_fields__]
        return tuple(BatchTimes(*entry) for entry in zip(*columns, strict=True))
    except (KeyError, TypeError, ValueError):
        return None
