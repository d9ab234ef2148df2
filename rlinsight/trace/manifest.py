"""`manifest.json`: what is known of a run beside its rows, and its merge with process files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from rlinsight.errors import TraceError
from rlinsight.trace.clock import Clocks
from rlinsight.trace.fitting import fitting
from rlinsight.trace.process import Process
from rlinsight.trace.schema import SCHEMA_VERSION
from rlinsight.trace.topology import Topology
from rlinsight.trace.upgrade import check_version

MANIFEST_NAME: Final = "manifest.json"

#: Notes of a process that have a place of their own in the manifest.
_NOTE_FIELDS: Final = {
    "mode": "mode", "engine": "engine", "config": "config", "packages": "versions",
    "versions": "versions",
}  # fmt: skip


@dataclass(frozen=True)
class Hook:
    """What became of one hook over all processes: in how many it was installed, and why not."""

    installed: int = 0
    skipped: int = 0
    failed: int = 0
    errors: int = 0
    reasons: tuple[str, ...] = ()

    def plus(self, status: str, reason: str | None, errors: int) -> Hook:
        """Return the tally with one more process. A `failed` one raised while it recorded."""
        known = reason is None or reason in self.reasons
        return Hook(
            self.installed + (status == "installed"),
            self.skipped + (status == "skipped"),
            self.failed + (status == "failed" or errors > 0),
            self.errors + errors,
            self.reasons if known or reason is None else (*self.reasons, reason),
        )


@dataclass(frozen=True)
class Manifest:
    """Everything about a run that is not a row. Unknown values are None or empty.

    `hooks`, `rows`, `dropped`, `hook_ns` and `flush_ns` are derived from `processes`; in
    the file they stand written out, for people and other tools.
    """

    schema_version: int = SCHEMA_VERSION
    run_id: str | None = None
    mode: str | None = None
    engine: str | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    topology: Topology = field(default_factory=Topology)
    clock: Clocks = field(default_factory=Clocks)
    notes: Mapping[str, Any] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()

    @property
    def hooks(self) -> dict[str, Hook]:
        """Hook name -> what became of it, over all processes."""
        hooks: dict[str, Hook] = {}
        for process in self.processes:
            for name, state in process.hooks.items():
                tally = hooks.get(name, Hook())
                hooks[name] = tally.plus(state.status, state.reason, state.errors)
        return hooks

    @property
    def rows(self) -> dict[str, int]:
        """Table -> rows the writers say they wrote, open intervals counted again when closed."""
        return _totals(process.rows for process in self.processes)

    @property
    def dropped(self) -> dict[str, int]:
        """Table -> rows lost to a full buffer, a failed write or an unstorable value."""
        return _totals(process.dropped for process in self.processes)

    @property
    def hook_ns(self) -> int:
        """Time spent inside hooks, summed over processes."""
        return sum(process.hook_ns for process in self.processes)

    @property
    def largest_hook_ns(self) -> int:
        """Time spent inside hooks by the process that spent most: what may have slowed the run."""
        return max((process.hook_ns for process in self.processes), default=0)

    @property
    def flush_ns(self) -> int:
        """CPU time of the background flush threads, summed over processes."""
        return sum(process.flush_ns for process in self.processes)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that recorded, in order of first appearance."""
        return tuple(dict.fromkeys(process.node for process in self.processes))

    def with_processes(self, processes: Iterable[Process]) -> Manifest:
        """Return the manifest completed by process files; what it already says wins.

        A process that is known already is replaced by its later report.
        """
        known = {process.key: process for process in self.processes}
        for process in processes:
            before = known.get(process.key)
            if before is None or process.flushed_ns >= before.flushed_ns:
                known[process.key] = process
        merged = replace(self, processes=tuple(sorted(known.values(), key=lambda p: p.key)))
        return merged._completed()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {
            "topology": self.topology.to_dict(),
            "clock": self.clock.to_dict(),
            "hooks": {name: vars(hook) for name, hook in self.hooks.items()},
            "rows": self.rows,
            "dropped": self.dropped,
            "hook_ns": self.hook_ns,
            "flush_ns": self.flush_ns,
            "processes": [process.to_dict() for process in self.processes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Manifest:
        """Read the JSON form; unknown keys are ignored.

        Raises ValueError, TypeError, KeyError or AttributeError for what does not fit.
        """
        known = fitting(cls, data, without=("topology", "clock", "processes"))
        known["topology"] = Topology.from_dict(data.get("topology") or {})
        known["clock"] = Clocks.from_dict(data.get("clock") or {})
        known["processes"] = tuple(map(Process.from_dict, data.get("processes") or ()))
        return cls(**known)

    def _completed(self) -> Manifest:
        """Fill what the manifest does not say from what its processes say."""
        changes: dict[str, Any] = {}
        notes: dict[str, Any] = {}
        for process in self.processes:
            notes = {**process.notes, **notes}
            changes.setdefault("run_id", process.run_id)
        for note, target in _NOTE_FIELDS.items():
            if note in notes:
                changes.setdefault(target, notes.pop(note))
        missing = {k: v for k, v in changes.items() if getattr(self, k) in (None, {})}
        return replace(
            self,
            topology=Topology.union((*(p.topology for p in self.processes), self.topology)),
            notes={**notes, **self.notes},
            **missing,
        )


def read_manifest(data: bytes) -> Manifest:
    """Read `manifest.json`. Raises ValueError, in one sentence, when it is damaged.

    Of one with a newer schema only the version is read: the rest may mean anything.
    """
    try:
        parsed = json.loads(data)
        version = _version(parsed)
        if version > SCHEMA_VERSION:
            return Manifest(schema_version=version)
        return Manifest.from_dict(parsed)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"damaged: {error}") from error


def write_manifest(folder: str | os.PathLike[str], manifest: Manifest) -> None:
    """Write `manifest.json` into a trace folder, replacing it in one step.

    A reader sees the old or the new one, never a part. Raises TraceError.
    """
    path = Path(folder) / MANIFEST_NAME
    temporary = path.with_name(f"{MANIFEST_NAME}.{os.getpid()}.tmp")
    text = json.dumps(manifest.to_dict(), indent=1, default=str)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise TraceError(f"cannot write `{path}`: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def update_manifest(folder: str | os.PathLike[str], **changes: Any) -> Manifest:
    """Set fields of the manifest of a trace folder (created if absent) and write it.

    Raises TraceError when it is damaged, of a newer schema, or cannot be written.
    """
    path = Path(folder) / MANIFEST_NAME
    manifest = Manifest()
    try:
        manifest = read_manifest(path.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot read `{path}`: {error}; move it away to go on") from error
    check_version(manifest.schema_version, str(path))
    manifest = replace(manifest, **changes)
    write_manifest(folder, manifest)
    return manifest


def _version(parsed: Any) -> int:
    others = [f.name for f in fields(Manifest) if f.name != "schema_version"]
    version: int = fitting(Manifest, parsed, without=others).get("schema_version", SCHEMA_VERSION)
    return version


def _totals(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for count in counts:
        for table, rows in count.items():
            totals[table] = totals.get(table, 0) + rows
    return totals
