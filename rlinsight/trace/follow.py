"""Following a trace while it is written: only what is new, at every poll."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlinsight.trace.files import TraceFiles, find_files, is_trace
from rlinsight.trace.folder import open_folder
from rlinsight.trace.frames import start_expr, to_polars
from rlinsight.trace.manifest import Manifest
from rlinsight.trace.rows import OPEN_KEY, merge_samples, superseded
from rlinsight.trace.schema import TableName
from rlinsight.trace.sources import LiveFile, Skipped, find_live, read_tables, why
from rlinsight.trace.streams_in import LiveStream
from rlinsight.trace.upgrade import UnusableTableError, conform

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


class Follower:
    """Returns the rows that were added since the last poll, table by table.

    A poll reads only what the files have grown by; the tail of a file that is being written
    is read once it is complete. Rows come as written: an interval that was open comes again
    when it has ended, and a sample may come in parts; `settled` sorts that out.

    `compacted` becomes true when a compaction has taken live files away: open the trace
    then, there is nothing left to follow.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = open_folder(path)
        self._files: TraceFiles | None = None
        self._streams: dict[str, _Followed] = {}
        self._unusable: tuple[Skipped, ...] = ()
        self.manifest = Manifest()
        self.compacted = False

    def poll(self) -> dict[TableName, pl.DataFrame]:
        """Return the new rows, per table that has some; the first poll returns all there are.

        A folder in which nothing was written yet has no rows. Raises TraceError when a newer
        rlinsight wrote it, OSError when it cannot be listed.
        """
        new: dict[TableName, list[pl.DataFrame]] = {}
        if self._files is None:
            if not is_trace(self._folder.entries()):
                return {}
            self._files = find_files(self._folder)
            for name, compacted in self._files.compacted.items():
                new[name] = [to_polars(table) for table in compacted.tables()]
        for followed in self._find(self._files):
            for table in followed.poll(self.manifest):
                new.setdefault(followed.file.table, []).append(to_polars(table))
        return {name: _joined(frames) for name, frames in new.items() if frames}

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """What could not be used so far; a tail that is being written is not among it."""
        damaged = [
            Skipped(self._folder.where(name), followed.problem)
            for name, followed in self._streams.items()
            if followed.problem is not None
        ]
        tables = self._files.damaged_tables() if self._files is not None else ()
        return (*self._unusable, *tables, *damaged)

    def _find(self, files: TraceFiles) -> list[_Followed]:
        """Return the streams that have grown."""
        found = find_live(self._folder, known=self._streams)
        self.manifest = files.read_manifest_again().with_processes(found.processes.values())
        self._unusable = tuple(found.skipped)
        for file in found.files:
            stream = LiveStream(lambda name=file.name: self._folder.open(name))  # type: ignore[misc]
            self._streams[file.name] = _Followed(file, stream, files.done_bytes(file))
        for name in self._streams.keys() - found.sizes.keys():
            self.compacted = True
            del self._streams[name]
        return [s for name, s in self._streams.items() if s.has_grown(found.sizes[name])]


class _Followed:
    """One live file and how far it was read."""

    def __init__(self, file: LiveFile, stream: LiveStream, done_bytes: int) -> None:
        self.file = file
        self.problem: str | None = None
        self._stream = stream
        self._done_bytes = done_bytes
        self._size = 0

    def has_grown(self, size: int) -> bool:
        """Note the size, and say whether there may be something to read."""
        grown, self._size = size != self._size, size
        return grown and self.problem is None

    def poll(self, manifest: Manifest) -> list[pa.Table]:
        """Return the new rows; a problem is noted and ends the reading of this file."""
        tables: list[pa.Table] = []
        try:
            # Kept as far as it got, should a later batch fail.
            tables.extend(read_tables(self.file, self._stream, manifest.clock, self._done_bytes))
        except FileNotFoundError:
            self._size = 0  # the next poll sees that it is gone
        except (OSError, UnusableTableError) as error:
            self.problem = why(error)
        else:
            self.problem = self._stream.problem
        return tables


def settled(name: TableName, frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of several polls as `Trace.table` would: opens cancelled, samples merged.

    Rows of equal key are taken as one interval, whichever process wrote them.
    """
    import polars as pl

    frame = _joined(list(frames))
    if name == "samples":
        frame = to_polars(merge_samples(conform(name, frame.to_arrow())))
    elif name in OPEN_KEY:
        rows = frame.select(*OPEN_KEY[name], "end_ns", process=pl.lit(0)).with_row_index("row")
        gone = superseded(name, rows)
        frame = frame.with_row_index("row").filter(~pl.col("row").is_in(gone)).drop("row")
    order = [start_expr(name), *(["sample_uid"] if name == "samples" else [])]
    return frame.sort(order, nulls_last=True, maintain_order=True)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return pl.concat(frames)
