"""Opening a trace: live, crashed, compacted or partial, all the same way."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rlinsight.errors import TraceError
from rlinsight.trace.compacted import CompactedTable
from rlinsight.trace.files import TraceFiles, find_files
from rlinsight.trace.folder import open_folder
from rlinsight.trace.frames import to_polars, within
from rlinsight.trace.manifest import Manifest
from rlinsight.trace.no_trace import not_a_trace
from rlinsight.trace.scan import scan, time_range
from rlinsight.trace.schema import TABLES, TableName
from rlinsight.trace.sources import Skipped

if TYPE_CHECKING:
    import polars as pl

    from rlinsight.analyzers.result import Report
    from rlinsight.trace.process import Process
    from rlinsight.trace.topology import Topology

Window = tuple[int, int]

#: A compacted table up to this size is kept in memory once read; a larger one is read anew
#: by each query, and only the columns it needs.
_CACHED_BYTES: Final = 64 << 20


class Trace:
    """A trace that was opened. Rows are read when a frame is asked for.

    Times are int64 nanoseconds since the epoch on the clock of the reference node. Each
    table is sorted by time (`start_ns`, `submit_ns`, `ts_ns`; a sample by `produced_ns`,
    else `consumed_ns`), in the same order whether the trace is live or compacted.
    """

    def __init__(self, files: TraceFiles) -> None:
        self.files = files
        self._frames: dict[TableName, pl.DataFrame] = {}

    def __repr__(self) -> str:
        return f"<Trace {self.path} run_id={self.manifest.run_id!r} mode={self.mode!r}>"

    # -- tables ------------------------------------------------------------------------

    @property
    def spans(self) -> pl.LazyFrame:
        """Intervals of one activity on one lane; `end_ns` null is still open."""
        return self.table("spans")

    @property
    def requests(self) -> pl.LazyFrame:
        """Generation attempts, one row each; `end_ns` null is in flight."""
        return self.table("requests")

    @property
    def samples(self) -> pl.LazyFrame:
        """Trajectories, one row per `sample_uid`, merged from what each process knew."""
        return self.table("samples")

    @property
    def counters(self) -> pl.LazyFrame:
        """Sampled gauges."""
        return self.table("counters")

    @property
    def metrics(self) -> pl.LazyFrame:
        """Metrics as the framework reported them."""
        return self.table("metrics")

    @property
    def markers(self) -> pl.LazyFrame:
        """Point events."""
        return self.table("markers")

    def table(
        self, name: TableName, window: Window | None = None, coded: Collection[str] = ()
    ) -> pl.LazyFrame:
        """Return a table, or its rows that overlap the window [start, end) in ns.

        Of a compacted table only the batches that the window touches are read. The names of the
        columns `coded` are categories instead of strings, a third of their size. Raises
        TraceError for an unknown table or a window that ends before it starts.
        """
        if name not in TABLES:
            raise TraceError(f"expected a table of {', '.join(TABLES)}, found `{name}`")
        if window is not None and window[1] < window[0]:
            raise TraceError(f"expected a window (start_ns, end_ns), found {window}")
        compacted = self._only_compacted(name)
        large = compacted is not None and compacted.size > _CACHED_BYTES
        if compacted is not None and name not in self._frames and (large or window is not None):
            return scan(compacted, window, coded)
        frame = self._frame(name).lazy()
        if coded:
            import polars as pl

            frame = frame.with_columns(pl.col(list(coded)).cast(pl.Categorical))
        return frame if window is None else frame.filter(within(name, window))

    def _only_compacted(self, name: TableName) -> CompactedTable | None:
        return None if self.files.live.get(name) else self.files.compacted.get(name)

    def _frame(self, name: TableName) -> pl.DataFrame:
        if name not in self._frames:
            compacted = self._only_compacted(name)
            rows = self.files.load(name) if compacted is None else compacted.load()
            self._frames[name] = to_polars(rows)
        return self._frames[name]

    # -- the run -----------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path or URL of the trace folder."""
        return self.files.folder.where()

    @property
    def manifest(self) -> Manifest:
        """What is known of the run beside its rows."""
        return self.files.manifest

    @property
    def topology(self) -> Topology:
        """Devices and lanes as they were declared."""
        return self.manifest.topology

    @property
    def mode(self) -> str | None:
        """sync, colocate_async, separate_async, fully_async, or None when not known."""
        return self.manifest.mode

    @property
    def processes(self) -> tuple[Process, ...]:
        """What each recording process said about itself."""
        return self.manifest.processes

    @property
    def is_live(self) -> bool:
        """Whether there are rows that were not compacted: the run lives, or crashed."""
        return any(self.files.live.values())

    @property
    def bytes_on_disk(self) -> dict[TableName, int]:
        """The size of each table's files, in bytes."""
        sizes = {name: table.size for name, table in self.files.compacted.items()}
        for name, files in self.files.live.items():
            sizes[name] = sizes.get(name, 0) + sum(file.size for file in files)
        return sizes

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Files, and parts of files, that are not used, each with the reason."""
        return self.files.skipped()

    @cached_property
    def time_range(self) -> Window | None:
        """The earliest and the latest time of any row, in ns; None when there is no row."""
        ranges = [found for name in TABLES if (found := self._table_range(name)) is not None]
        if not ranges:
            return None
        return min(first for first, _ in ranges), max(last for _, last in ranges)

    def _table_range(self, name: TableName) -> Window | None:
        compacted = self._only_compacted(name)
        if compacted is not None and compacted.index is not None:
            firsts = [e.first_ns for e in compacted.index if e.first_ns is not None]
            lasts = [e.last_ns for e in compacted.index if e.last_ns is not None]
            return (min(firsts), max(lasts)) if firsts and lasts else None
        return time_range(name, self.table(name))

    @cached_property
    def uncalibrated_lanes(self) -> frozenset[str]:
        """Lanes on nodes whose clock is not known well enough to compare with other nodes.

        Their times are as recorded. What joins lanes of several nodes must leave them out,
        or say that it did not.
        """
        nodes = self.manifest.clock.uncalibrated(self.manifest.nodes)
        lanes = {
            lane.id
            for process in self.processes
            for lane in process.topology.lanes
            if (lane.node or process.node) in nodes
        }
        lanes |= {lane.id for lane in self.topology.lanes if lane.node in nodes}
        return frozenset(lanes | {f"{p.node}/{p.pid}" for p in self.processes if p.node in nodes})

    def analyze(self, window: Window | None = None, lanes: Sequence[str] | None = None) -> Report:
        """Return the analysis; `window` (start_ns, end_ns) overrides the steady-state cut.

        `lanes` restricts the device time to the devices of these lanes. Raises TraceError when
        the trace, or the window, holds nothing that can be analyzed, or a lane is not in it.
        """
        from rlinsight import analyzers

        report: Report = analyzers.analyze(self, window=window, lanes=lanes)
        return report


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace folder, at a local path or an fsspec URL.

    What cannot be used is left out and named in `Trace.skipped`. Raises TraceError when
    there is no trace, it cannot be listed, or a newer rlinsight wrote it.
    """
    folder = open_folder(path)
    try:
        return Trace(find_files(folder))
    except NotADirectoryError as error:
        raise TraceError(not_a_trace(folder)) from error
    except OSError as error:
        raise TraceError(f"cannot read `{folder.where()}`: {error.strerror or error}") from error
