"""One accepted run, as a small JSON file that diffs well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rlinsight.errors import BaselineError

FORMAT: Final = "rlinsight-baseline"
RECORD_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True)
class Record:
    """An accepted run: `observation` is what the gate keeps of it, as plain JSON.

    Only `trusted` runs make a reference; `note` says why one was accepted or is not trusted.
    """

    name: str
    key: str
    added: str
    trusted: bool
    note: str
    observation: Mapping[str, Any]

    @property
    def recorded_ns(self) -> int:
        """When the run began, 0 where that is unknown."""
        return int(self.observation.get("recorded_ns") or 0)

    @property
    def identity(self) -> dict[str, str]:
        """What must agree before a run can be compared with this one."""
        return {str(k): str(v) for k, v in self.observation["identity"].items()}

    def to_text(self) -> str:
        """Return the file: a key per line, a list on one line, so that a change is one line."""
        document = {
            "format": FORMAT,
            "schema_version": RECORD_SCHEMA_VERSION,
            "name": self.name,
            "key": self.key,
            "added": self.added,
            "trusted": self.trusted,
            "note": self.note,
            "observation": self.observation,
        }
        return _lines(document, "") + "\n"

    @classmethod
    def from_text(cls, text: str | bytes, where: str) -> Record:
        """Read a file; `where` names it in errors. Raises BaselineError."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise BaselineError(f"cannot read `{where}`: it is no JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise BaselineError(
                f"expected a baseline of rlinsight, found something else: `{where}`"
            )
        if data.get("schema_version") != RECORD_SCHEMA_VERSION:
            raise BaselineError(
                f"expected schema_version {RECORD_SCHEMA_VERSION} in `{where}`, found "
                f"{data.get('schema_version')!r}; a newer rlinsight reads it"
            )
        try:
            return _record(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise BaselineError(f"cannot read `{where}`: damaged: {error!r}") from error


def _record(data: Mapping[str, Any]) -> Record:
    if not isinstance(data["trusted"], bool):
        raise TypeError("`trusted` is no boolean")
    return Record(
        name=str(data["name"]),
        key=str(data["key"]),
        added=str(data["added"]),
        trusted=data["trusted"],
        note=str(data.get("note") or ""),
        observation={**data["observation"], "identity": dict(data["observation"]["identity"])},
    )


def _lines(value: Any, indent: str) -> str:
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = indent + " "
    rows = (
        f"{inner}{json.dumps(key, ensure_ascii=False)}: {_lines(item, inner)}"
        for key, item in value.items()
    )
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
