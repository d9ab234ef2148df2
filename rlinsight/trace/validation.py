"""The result of checking a trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from rlinsight.trace.checks import DeadProcess, Overlap, RequestCounts, SampleCounts
from rlinsight.trace.manifest import Hook

#: Of the JSON form; it changes when a key changes its meaning or goes away.
VALIDATION_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class TableCheck:
    """One table: rows as read, bytes on disk, rows that its writers had to drop."""

    rows: int
    bytes: int
    dropped: int


@dataclass(frozen=True)
class LaneCheck:
    """One lane. `role` None: it was never declared. `last_ns` None: nothing was recorded."""

    id: str
    role: str | None
    rows: int
    last_ns: int | None
    calibrated: bool


@dataclass(frozen=True)
class Clock:
    """One node's clock. `residual_ns` None: it was never compared with the reference."""

    node: str
    residual_ns: int | None
    drift: float
    calibrated: bool


@dataclass(frozen=True)
class Finding:
    """Something that is wrong; `kind` is one of those listed in docs/trace.md."""

    kind: str
    message: str


@dataclass(frozen=True)
class Validation:
    """The result of `rlinsight validate`. Times in ns since the epoch.

    `findings` are defects; `notes` are worth knowing and no defects. `hook_share` is the time
    inside hooks, summed over processes, over the wall time of the recording, `hook_share_largest`
    that of the process with most: processes run beside each other, so only one slows the run.
    """

    path: str
    run_id: str | None
    mode: str | None
    is_live: bool
    time_range: tuple[int, int] | None
    tables: dict[str, TableCheck]
    lanes: tuple[LaneCheck, ...]
    open_spans: int
    requests: RequestCounts
    samples: SampleCounts
    clocks: tuple[Clock, ...]
    overlaps: tuple[Overlap, ...]
    dead: tuple[DeadProcess, ...]
    hooks: dict[str, Hook]
    hook_share: float | None
    hook_share_largest: float | None
    unknown_names: dict[str, dict[str, int]]
    backward_rows: dict[str, int]
    skipped: dict[str, str]
    processes: int
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no finding."""
        return not self.findings

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(table.rows for table in self.tables.values())

    @property
    def duration_s(self) -> float | None:
        """From the first to the last recorded time, in seconds."""
        return (self.time_range[1] - self.time_range[0]) / 1e9 if self.time_range else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `rlinsight validate --json`."""
        known = {"schema_version": VALIDATION_SCHEMA_VERSION, **asdict(self)}
        return {**known, "ok": self.ok, "duration_s": self.duration_s}
