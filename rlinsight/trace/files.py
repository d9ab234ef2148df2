"""Which files make up a trace, and reading the rows of one table from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from rlinsight.errors import TraceError
from rlinsight.trace.compacted import CompactedTable, Source, open_compacted, source_of
from rlinsight.trace.folder import Entry, Folder
from rlinsight.trace.manifest import MANIFEST_NAME, Manifest, read_manifest
from rlinsight.trace.no_trace import not_a_trace
from rlinsight.trace.parts import CompactedPart, LivePart
from rlinsight.trace.process import Process
from rlinsight.trace.rows import settle
from rlinsight.trace.schema import TABLES, TableName
from rlinsight.trace.sources import (
    FOREIGN,
    LIVE,
    LiveFile,
    Skipped,
    empty_table,
    find_live,
    why,
)
from rlinsight.trace.upgrade import check_version

_COMPACTED_NAMES: Final[dict[str, TableName]] = {f"{name}.arrow": name for name in TABLES}

#: A compaction replaces one table after the other; a look begun in between is begun anew.
_LOOKS: Final = 2 * len(TABLES)

#: What the launcher and people keep beside a trace.
_COMPANIONS: Final = (".log", ".jsonl", ".yaml", ".yml", ".html", ".md", ".txt")


@dataclass
class TraceFiles:
    """The files of a trace, found and looked at, with what was not usable.

    `done` are live files that lie there only because a compaction was interrupted.
    """

    folder: Folder
    manifest: Manifest = field(default_factory=Manifest)
    compacted: dict[TableName, CompactedTable] = field(default_factory=dict)
    live: dict[TableName, list[LiveFile]] = field(default_factory=dict)
    live_processes: dict[str, Process] = field(default_factory=dict)
    done: list[LiveFile] = field(default_factory=list)
    unusable: list[Skipped] = field(default_factory=list)
    remarks: dict[str, str | None] = field(default_factory=dict)
    _sources: dict[str, Source] = field(default_factory=dict)

    def parts(self, name: TableName) -> list[LivePart | CompactedPart]:
        """Return what the rows of a table are read from, in the order rows of equal time keep."""
        compacted = self.compacted.get(name)
        parts: list[LivePart | CompactedPart] = []
        if compacted is not None:
            parts.append(CompactedPart(compacted))
        numbers: dict[tuple[str, int], int] = {}
        for file in self.live.get(name, ()):
            number = numbers.setdefault((file.node, file.pid), len(numbers))
            # Who wrote compacted rows is not kept: beside them, equal keys are one interval.
            process = number if compacted is None else 0
            parts.append(self._part(file, process))
        return parts

    def load(self, name: TableName) -> pa.Table:
        """Return all rows of a table, settled. Raises TraceError."""
        compacted = self.compacted.get(name)
        if compacted is not None and not self.live.get(name):
            return compacted.load()
        tables: list[pa.Table] = []
        processes: list[pa.Array] = []
        for part in self.parts(name):
            for table in part.tables():
                tables.append(table)
                processes.append(pa.repeat(pa.scalar(part.process, pa.int32()), table.num_rows))
            if isinstance(part, LivePart):
                if part.gone and self._were_compacted(part.file):
                    return self.load(name)
                self.remarks[part.file.name] = part.remark
        if not tables:
            return empty_table(name)
        table = pa.concat_tables(tables).combine_chunks()
        return settle(name, table, pa.concat_arrays(processes))

    def _were_compacted(self, file: LiveFile) -> bool:
        """Tell whether the rows of a file that is gone are in its table now, and look anew if so.

        A trace may be compacted between its opening and its reading.
        """
        now = find_files(self.folder)
        table = now.compacted.get(file.table)
        if table is None or all(source.file != file.name for source in table.sources):
            return False
        vars(self).update(vars(now))
        return True

    def skipped(self) -> tuple[Skipped, ...]:
        """Return what is not used; live files that were not read yet are skimmed.

        Of compacted tables, the batches that were found damaged so far.
        """
        for file in (file for files in self.live.values() for file in files):
            if file.name in self.remarks:
                continue
            part = self._part(file, 0)
            self.remarks[file.name] = part.skim()
            if part.gone and self._were_compacted(file):
                return self.skipped()
        remarks = [
            Skipped(self.folder.where(name), remark)
            for name, remark in sorted(self.remarks.items())
            if remark is not None
        ]
        return (*self.unusable, *self._missing_tables(), *self.damaged_tables(), *remarks)

    def _missing_tables(self) -> Iterator[Skipped]:
        """Yield the tables of which no file is left, though rows of them were written."""
        for file, name in _COMPACTED_NAMES.items():
            rows = self.manifest.rows.get(name, 0)
            if rows and name not in self.compacted and not self.live.get(name):
                reason = f"not there, although {rows} rows of `{name}` were written"
                yield Skipped(self.folder.where(file), reason)

    def damaged_tables(self) -> tuple[Skipped, ...]:
        """Return the compacted tables of which something is not used, as far as was read."""
        return tuple(
            Skipped(self.folder.where(table.file), remark)
            for table in self.compacted.values()
            if (remark := table.remark) is not None
        )

    def _part(self, file: LiveFile, process: int) -> LivePart:
        source = self._sources.get(file.name)
        done = source.bytes if source else 0
        return LivePart(self.folder, file, self.manifest.clock, done, process)

    def look_at(self, entry: Entry) -> None:
        """File one entry of the trace folder. Raises OSError, ValueError, TraceError."""
        if entry.name == MANIFEST_NAME:
            with closing(self.folder.open(entry.name)) as file:
                self.manifest = read_manifest(file.read())
            check_version(self.manifest.schema_version, self.folder.where(entry.name))
        elif entry.name in _COMPACTED_NAMES:
            name = _COMPACTED_NAMES[entry.name]
            self.compacted[name] = open_compacted(self.folder, name, entry.size)
        elif entry.is_file and not entry.name.endswith(_COMPANIONS):
            raise ValueError(FOREIGN)

    def look_at_live(self) -> None:
        """File what is in `live/`. Raises OSError, TraceError."""
        found = find_live(self.folder)
        self.unusable.extend(found.skipped)
        self.live_processes = found.processes
        self.manifest = self.manifest.with_processes(found.processes.values())
        for file in found.files:
            source = source_of(self.folder, file.name, self.compacted.get(file.table))
            if source is not None:
                self._sources[file.name] = source
            if source is None or source.size != file.size:
                self.live.setdefault(file.table, []).append(file)
            elif source.damage is None:
                self.done.append(file)
            else:
                self.remarks[file.name] = source.damage


def is_trace(names: Iterable[str]) -> bool:
    """Whether a folder that holds these names is a trace, or has begun to be one."""
    return not {MANIFEST_NAME, LIVE, *_COMPACTED_NAMES}.isdisjoint(names)


def is_trace_folder(path: Path) -> bool:
    """Whether a local folder is a trace; one that cannot be listed is none."""
    try:
        return is_trace(entry.name for entry in path.iterdir())
    except OSError:
        return False


def find_files(folder: Folder) -> TraceFiles:
    """Look through a trace folder.

    A live file that a compaction removes meanwhile is neither missed nor counted twice: when
    the tables are other ones after the look than before, it is taken again. Raises OSError when
    the folder cannot be listed, TraceError when it is no trace or a newer one.
    """
    entries = folder.entries()
    for _ in range(_LOOKS):
        before, files = entries, _look(folder, entries)
        if all(entry.name != LIVE for entry in before):
            break  # nothing is left that could be compacted
        entries = folder.entries()
        if _tables(entries) == _tables(before):
            break
    return files


def _look(folder: Folder, entries: list[Entry]) -> TraceFiles:
    files = TraceFiles(folder)
    if not is_trace(entry.name for entry in entries):
        raise TraceError(not_a_trace(folder))
    for entry in entries:
        try:
            files.look_at(entry)
        except (OSError, ValueError) as error:
            files.unusable.append(Skipped(folder.where(entry.name), why(error)))
    files.look_at_live()
    return files


def _tables(entries: list[Entry]) -> set[tuple[str, int]]:
    return {(entry.name, entry.size) for entry in entries if entry.name in _COMPACTED_NAMES}
