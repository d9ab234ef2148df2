"""The log of a tuning as one JSON file.

It is replaced as a whole, so that a process that is killed at any moment leaves either the log
before a step or the one after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlinsight.errors import ConfigError
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import (
    TUNE_SCHEMA_VERSION,
    Candidate,
    Judged,
    Log,
    Measured,
    Record,
    Skipped,
)


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
    limits = data.get("limits")
    return Log(
        **{
            **data,
            "records": records,
            "skipped": skipped,
            "limits": None if limits is None else _limits(limits),
        }
    )


def _limits(data: Mapping[str, Any]) -> Limits:
    return Limits(**{**data, "hold": tuple(data["hold"]), "despite": tuple(data["despite"])})


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
