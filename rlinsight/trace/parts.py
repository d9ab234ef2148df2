"""What the rows of one table are read from: live files, and the table they were compacted into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from rlinsight.trace.clock import Clocks
from rlinsight.trace.compacted import CompactedTable
from rlinsight.trace.folder import Folder
from rlinsight.trace.sources import LiveFile, open_stream, read_tables, why
from rlinsight.trace.upgrade import UnusableTableError


@dataclass
class LivePart:
    """The rows of one live file, as it was when the trace was opened.

    After `tables`, `consumed` and `remark` say how much of the file was used, and `gone` that
    it is not there any more.
    """

    folder: Folder
    file: LiveFile
    clocks: Clocks
    done_bytes: int
    process: int
    consumed: int = 0
    remark: str | None = None
    damaged: bool = False
    gone: bool = False

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows that are not in the compacted table yet."""
        stream = open_stream(self.folder, self.file)
        try:
            yield from read_tables(self.file, stream, self.clocks, self.done_bytes)
            self.remark, self.damaged = stream.remark, stream.problem is not None
        except (OSError, UnusableTableError) as error:
            self.remark, self.damaged = why(error), True
            self.gone = isinstance(error, FileNotFoundError)
        self.consumed = stream.consumed

    def skim(self) -> str | None:
        """Return what of the file cannot be read, without decoding it."""
        stream = open_stream(self.folder, self.file)
        try:
            stream.skim()
        except OSError as error:
            self.gone = isinstance(error, FileNotFoundError)
            return why(error)
        return stream.remark


@dataclass
class CompactedPart:
    """The rows of a compacted table, beside which there are live files."""

    compacted: CompactedTable
    process: int = 0

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of the batches that are whole. Raises TraceError."""
        yield from self.compacted.tables()
