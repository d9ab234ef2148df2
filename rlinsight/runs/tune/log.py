"""The log of a tuning: everything that was planned, measured and decided, as one JSON file.

The log is the state: the loop knows nothing that is not in it. It is replaced as a whole, so that
a process that is killed at any moment leaves either the log before a step or the one after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from rlinsight.errors import ConfigError

TUNE_SCHEMA_VERSION: Final = 1

Kind = Literal["smoke", "baseline", "experiment"]
Decision = Literal["passed", "kept", "reverted", "failed", "interrupted"]
Objective = Literal["per-device", "wall-clock"]


@dataclass(frozen=True)
class Candidate:
    """A finding of the advisor, as far as an experiment needs it.

    `overrides` are the exact settings of verl; `predicted` is the relative change of the
    objective with its interval, None where the simulator does not know.
    """

    rule: str
    tier: int
    variables: str
    says: str
    evidence: tuple[str, ...]
    overrides: tuple[str, ...]
    predicted: tuple[float, float | None, float | None] | None
    risk: str
    verify: str
    falsifier: str
    costs_quality: bool

    @property
    def change(self) -> str:
        """What is changed, as one would type it."""
        return " ".join(self.overrides)


@dataclass(frozen=True)
class Measured:
    """What a finished run showed. `problem` is why it cannot be used: it failed, or stands still.

    `value` is the objective with its 95 % interval over `windows` steady windows.
    """

    problem: str | None
    windows: int = 0
    value: float | None = None
    low: float | None = None
    high: float | None = None
    figures: dict[str, float | None] = field(default_factory=dict)
    answer: str = ""
    candidates: tuple[Candidate, ...] = ()
    cleared: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """An experiment beside the kept run: the relative change of the objective, and what it cost.

    `real` as in docs/compare.md; None where the two could not be compared, and `reason` says why.
    `losses` are what the quality guard found, `differences` the other figures that really differ.
    """

    change: float | None
    low: float | None
    high: float | None
    detectable: float | None
    real: Literal["better", "worse", "no"] | None
    reason: str
    losses: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """One run: what it was for, what it ran, and what came of it.

    `beside` is the number of the kept run it is compared with. Times are Unix seconds.
    """

    number: int
    kind: Kind
    document: dict[str, Any]
    trace: str
    began_s: float
    beside: int | None = None
    candidate: Candidate | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    measured: Measured | None = None
    judged: Judged | None = None
    decision: Decision | None = None
    reason: str = ""


@dataclass(frozen=True)
class Skipped:
    """A finding of run `beside` that was not tried, and why."""

    beside: int
    rule: str
    change: str
    reason: str


@dataclass(frozen=True)
class Log:
    """The whole tuning. `document` is the configuration that it began with."""

    name: str
    config: str
    folder: str
    cwd: str
    objective: Objective
    document: dict[str, Any]
    records: tuple[Record, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    stopped: str | None = None
    schema_version: int = TUNE_SCHEMA_VERSION

    def of_kind(self, kind: Kind) -> list[Record]:
        """Return the decided runs of a kind, without those that were interrupted."""
        return [
            one
            for one in self.records
            if one.kind == kind and one.decision not in (None, "interrupted")
        ]

    @property
    def kept(self) -> Record | None:
        """The best run so far: the baseline, or the experiment that was kept last."""
        return next((one for one in reversed(self.records) if one.decision == "kept"), None)

    @property
    def open(self) -> Record | None:
        """The run that was begun and is not decided on, None where there is none."""
        last = self.records[-1] if self.records else None
        return last if last is not None and last.decision is None else None

    def record(self, number: int | None) -> Record | None:
        """Return a run by its number."""
        return next((one for one in self.records if one.number == number), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; see docs/tune.md."""
        return asdict(self)


def save(log: Log, path: Path) -> None:
    """Replace the file at `path` by `log`, at once: a reader finds the old one or the new one."""
    text = json.dumps(log.to_dict(), indent=1)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write the log `{path}`: {error}") from error


def load(path: Path) -> Log | None:
    """Return the log at `path`, None where there is none. Raises ConfigError for a damaged one."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read the log `{path}`: {error}") from error
    try:
        return from_dict(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"expected the log of a tuning in `{path}`, found something else: {error}; give "
            "another folder with `--to`"
        ) from error


def from_dict(data: Mapping[str, Any]) -> Log:
    """Read the JSON form. Raises KeyError, TypeError or ValueError for what is none."""
    version = data["schema_version"]
    if version != TUNE_SCHEMA_VERSION:
        raise ValueError(f"schema_version {version!r}, expected {TUNE_SCHEMA_VERSION}")
    records = tuple(map(_record, data["records"]))
    skipped = tuple(Skipped(**one) for one in data["skipped"])
    return Log(**{**data, "records": records, "skipped": skipped})


def _record(data: Mapping[str, Any]) -> Record:
    measured, judged, candidate = data["measured"], data["judged"], data["candidate"]
    return Record(
        **{
            **data,
            "candidate": None if candidate is None else _candidate(candidate),
            "measured": None if measured is None else _measured(measured),
            "judged": None if judged is None else _judged(judged),
        }
    )


def _candidate(data: Mapping[str, Any]) -> Candidate:
    predicted = data["predicted"]
    return Candidate(
        **{
            **data,
            "evidence": tuple(data["evidence"]),
            "overrides": tuple(data["overrides"]),
            "predicted": None if predicted is None else tuple(predicted),
        }
    )


def _measured(data: Mapping[str, Any]) -> Measured:
    return Measured(**{**data, "candidates": tuple(map(_candidate, data["candidates"]))})


def _judged(data: Mapping[str, Any]) -> Judged:
    return Judged(
        **{**data, "losses": tuple(data["losses"]), "differences": tuple(data["differences"])}
    )
