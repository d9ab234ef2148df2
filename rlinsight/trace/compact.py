"""Compaction: the live files of a trace into one time-sorted Arrow file per table.

Each table is written under a temporary name and renamed, and only then are its live files
removed; the compacted file says which live files are in it. So whenever this is
interrupted, the trace reads the same as before.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from rlinsight.errors import TraceError
from rlinsight.trace.compact_report import CompactReport, TableReport
from rlinsight.trace.compacted import SOURCES_KEY, Source, tail_digest
from rlinsight.trace.compacted_writer import CompactedWriter
from rlinsight.trace.external_sort import sort_into, survey
from rlinsight.trace.files import TraceFiles
from rlinsight.trace.manifest import write_manifest
from rlinsight.trace.parts import LivePart
from rlinsight.trace.process import Process
from rlinsight.trace.reader import open_trace
from rlinsight.trace.schema import TABLES, TableName
from rlinsight.trace.sources import LIVE, Skipped

_WORK: Final = ".compacting"

#: Rows per batch: what a window reads at least. Smaller batches compress worse.
BATCH_ROWS: Final = 1 << 15

#: Rows held in memory, in bytes; the peak of the process is several times that.
MEMORY_BYTES: Final = 128 << 20


def compact(
    path: str | os.PathLike[str],
    *,
    memory_bytes: int = MEMORY_BYTES,
    batch_rows: int = BATCH_ROWS,
) -> CompactReport:
    """Compact the trace folder `path` in place; once more does nothing.

    Call it when the recording processes have ended: a process that still runs keeps its
    live files. Raises TraceError, in one sentence, when it cannot be done; the trace is
    then as readable as before.
    """
    folder = Path(path)
    if "://" in os.fspath(path):
        raise TraceError(f"expected a local folder to compact, found the URL `{path}`")
    trace = open_trace(folder)
    report = CompactReport(trace.path, {}, trace.skipped, ())
    job = _Job(folder, trace.files, memory_bytes, batch_rows)
    if not job.is_needed():
        return report
    try:
        job.prepare()
        tables = {name: job.table(name) for name in TABLES if trace.files.live.get(name)}
        job.finish()
    except (OSError, pa.ArrowException) as error:
        raise TraceError(_explain(folder, error)) from error
    finally:
        shutil.rmtree(job.work, ignore_errors=True)
    return replace(report, tables=tables, kept=tuple(job.kept))


class _Job:
    """One compaction under way."""

    def __init__(self, folder: Path, files: TraceFiles, memory_bytes: int, batch_rows: int) -> None:
        self.folder, self.files = folder, files
        self.memory_bytes, self.batch_rows = memory_bytes, batch_rows
        self.work = folder / _WORK
        self.kept: list[Skipped] = []
        self._running = _running(files.manifest.processes)

    def is_needed(self) -> bool:
        """Whether anything is left to compact or to clear away."""
        files = self.files
        return bool(files.live or files.done or files.live_processes or self.work.exists())

    def prepare(self) -> None:
        """Make an empty working folder, on the same disk so that a rename is one step.

        Raises TraceError if a table that cannot be read, or not all of it, would be overwritten.
        """
        for name in self.files.live:
            target = self.folder / f"{name}.arrow"
            if target.exists() and not self._is_whole(name):
                raise TraceError(
                    f"cannot compact `{self.folder}`: `{target.name}` is there but cannot be "
                    f"read as a whole; move it away and compact again"
                )
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()

    def _is_whole(self, name: TableName) -> bool:
        table = self.files.compacted.get(name)
        if table is None:
            return False
        table.check()
        return table.remark is None

    def table(self, name: TableName) -> TableReport:
        """Compact one table."""
        temporary, target = self.work / f"{name}.arrow", self.folder / f"{name}.arrow"
        parts = self.files.parts(name)
        found = survey(name, parts, self.memory_bytes)
        live = [part for part in parts if isinstance(part, LivePart)]
        sources = self._sources(name, live)
        writer = CompactedWriter(
            temporary,
            name,
            found.names,
            self._metadata(sources),
            max_rows=found.rows,
            max_bytes=found.bytes,
            batch_rows=self.batch_rows,
        )
        try:
            sort_into(writer, name, parts, found, self.work, self.memory_bytes)
            rows = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        temporary.replace(target)
        _sync(self.folder)
        for part in live:
            self._remove(part)
        bytes_in = sum(part.file.size for part in live)
        return TableReport(found.rows, rows, bytes_in, target.stat().st_size)

    def finish(self) -> None:
        """Move what the process files say into the manifest, and clear `live/` away."""
        write_manifest(self.folder, self.files.manifest)
        for name, process in self.files.live_processes.items():
            if (process.node, process.pid) not in self._running:
                (self.folder / name).unlink(missing_ok=True)
        for file in self.files.done:
            if (file.node, file.pid) not in self._running:
                (self.folder / file.name).unlink(missing_ok=True)
        try:
            (self.folder / LIVE).rmdir()
        except OSError:
            pass  # something is left in it, or it is not there

    def _metadata(self, sources: Iterable[Source]) -> dict[str, Any]:
        return {
            "rlinsight.run_id": self.files.manifest.run_id,
            "rlinsight.clock": self.files.manifest.clock.to_dict(),
            SOURCES_KEY: [asdict(source) for source in sources],
        }

    def _sources(self, name: TableName, parts: Iterable[LivePart]) -> list[Source]:
        """Say which live files are in the table, and those of an earlier compaction."""
        compacted = self.files.compacted.get(name)
        sources = {s.file: s for s in (compacted.sources if compacted else ())}
        for part in parts:
            file, damage = part.file, part.remark if part.damaged else None
            try:
                with (self.folder / file.name).open("rb") as opened:
                    tail = tail_digest(opened, part.consumed)
            except OSError:
                continue  # nothing of it was read
            sources[file.name] = Source(file.name, part.consumed, file.size, tail, damage)
        return list(sources.values())

    def _remove(self, part: LivePart) -> None:
        path = self.folder / part.file.name
        reason = None
        if (part.file.node, part.file.pid) in self._running:
            reason = "its process still runs"
        elif part.damaged:
            reason = part.remark
        elif path.stat().st_size > part.file.size:
            reason = "it has grown meanwhile"
        if reason is None:
            path.unlink()
        else:
            self.kept.append(Skipped(str(path), reason))


def _running(processes: Iterable[Process]) -> frozenset[tuple[str, int]]:
    """Return the processes of this machine that did not end their recording and still run."""
    from rlinsight.trace.writer import node_name

    here = node_name()
    return frozenset(
        (process.node, process.pid)
        for process in processes
        if process.ended_ns is None and process.node == here and _exists(process.pid)
    )


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(folder: Path, error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(folder).free
        return (
            f"no space left to compact `{folder}` ({free / 1e6:.0f} MB free): its live files "
            f"are kept and the trace can be read; free some space and compact it again"
        )
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return f"cannot compact `{folder}`: {reason}; its live files are kept, it can be read"
