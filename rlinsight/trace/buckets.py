"""Rows parted into buckets on disk, so that each bucket fits in memory.

Which rows meet in a bucket is the caller's choice: of one time range, to sort them, or of
one hash, to merge what is said of one sample. Rows keep their order within a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_BUFFERED_BYTES: Final = 1 << 20  # per bucket


class Buckets:
    """`count` buckets in `folder`, each a temporary Arrow stream. Raises OSError.

    `memory_bytes` bounds what is held back, over all buckets, before it is written.
    """

    def __init__(self, folder: Path, label: str, count: int, memory_bytes: int) -> None:
        self._paths = [folder / f"{label}-{i}.arrows" for i in range(count)]
        self._buffers: list[list[pa.Table]] = [[] for _ in range(count)]
        self._sizes = [0] * count
        self._limit = min(_BUFFERED_BYTES, max(1, memory_bytes // count))

    def add(self, bucket: int, rows: pa.Table) -> None:
        """Append rows to a bucket."""
        self._buffers[bucket].append(rows)
        self._sizes[bucket] += rows.nbytes
        if self._sizes[bucket] >= self._limit:
            self._spill(bucket)

    def scatter(self, rows: pa.Table, bucket: pa.Array) -> None:
        """Append each row to the bucket that `bucket` names."""
        counts = pc.value_counts(bucket).to_pylist()
        if len(counts) == 1:
            self.add(counts[0]["values"], rows)
            return
        order, at = pc.sort_indices(bucket), 0
        for count in sorted(counts, key=lambda c: c["values"]):
            # Taken, not sliced: a slice would keep all the rows it was cut from in memory.
            self.add(count["values"], rows.take(order.slice(at, count["counts"])))
            at += count["counts"]

    def take(self) -> Iterator[pa.Table | None]:
        """Yield the rows of each bucket in turn (None when empty), and delete them."""
        for bucket, path in enumerate(self._paths):
            parts = self._read(path)
            parts.extend(self._buffers[bucket])
            self._buffers[bucket] = []
            yield pa.concat_tables(parts).combine_chunks() if parts else None

    def _read(self, path: Path) -> list[pa.Table]:
        parts: list[pa.Table] = []
        if path.exists():
            with pa.OSFile(str(path), "rb") as file:
                while file.tell() < file.size():
                    parts.append(pa.ipc.open_stream(file).read_all())
            path.unlink()
        return parts

    def _spill(self, bucket: int) -> None:
        rows = pa.concat_tables(self._buffers[bucket]).combine_chunks()
        # One stream after the other in one file: no descriptor stays open, and each part
        # has its own dictionaries.
        with self._paths[bucket].open("ab") as file:
            with pa.ipc.new_stream(file, rows.schema, options=_OPTIONS) as writer:
                writer.write_table(rows)
        self._buffers[bucket], self._sizes[bucket] = [], 0


def time_bucket(times: Any, bounds: Sequence[int]) -> pa.Array:
    """Return the number of bounds at or below each time; without a time, the last bucket.

    There is one more bucket than bounds, and one more for rows without a time.
    """
    import polars as pl

    found = pl.Series(bounds, dtype=pl.Int64).search_sorted(pl.Series(times), side="right")
    bucket = pl.Series(found, dtype=pl.Int32)
    missing = pl.Series(pc.is_null(times))
    return bucket.set(missing, len(bounds) + 1).to_arrow()


def hash_bucket(names: Any, count: int) -> pa.Array:
    """Return a bucket for each name, the same for equal names."""
    import polars as pl

    return (pl.Series(names).hash(seed=7) % count).cast(pl.Int32).to_arrow()
