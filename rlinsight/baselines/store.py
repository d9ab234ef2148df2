"""A folder of accepted runs, on a local disk or behind an fsspec URL: one JSON file per run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from rlinsight.baselines.record import Record
from rlinsight.errors import BaselineError

_SUFFIX: Final = ".json"
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Store:
    """The baselines in a folder. Every method raises BaselineError where storage fails."""

    def __init__(self, url: str) -> None:
        import fsspec

        if not url:
            raise BaselineError("expected a folder or URL of baselines, found an empty text")
        self.url = url.rstrip("/") or "/"
        try:
            self._fs, self._root = fsspec.core.url_to_fs(self.url)
        except Exception as error:  # every storage has exceptions of its own
            raise BaselineError(f"cannot open the baseline `{url}`: {error}") from error

    def records(self) -> list[Record]:
        """Return all runs, the latest first. Raises BaselineError for one that is damaged.

        A damaged file would silently shrink the history: it has to be repaired or dropped.
        """
        names = self._names()
        if names is None:
            if self._fs.isfile(self._root):
                raise BaselineError(f"expected a folder of baselines, found a file: `{self.url}`")
            raise BaselineError(
                f"expected a folder of baselines, found nothing at `{self.url}`; "
                f"`rlinsight baseline add TRACE --to {self.url}` stores the first run"
            )
        found = [Record.from_text(self._read(name), self._where(name)) for name in names]
        return sorted(found, key=lambda record: (-record.recorded_ns, record.name))

    def get(self, name: str) -> Record:
        """Return one run by its name."""
        known = self._names() or []
        if name + _SUFFIX not in known:
            listed = ", ".join(file.removesuffix(_SUFFIX) for file in known) or "none"
            raise BaselineError(f"expected a baseline of `{self.url}` ({listed}), found `{name}`")
        return Record.from_text(self._read(name + _SUFFIX), self._where(name + _SUFFIX))

    def add(self, record: Record, *, replace_it: bool = False) -> str:
        """Store a run and return where. Raises BaselineError where the name is taken."""
        if _ODD.search(record.name):
            raise BaselineError(
                f"expected a name of letters, digits, `.`, `_` and `-`, found `{record.name}`"
            )
        file = record.name + _SUFFIX
        if not replace_it and file in (self._names() or []):
            raise BaselineError(
                f"`{record.name}` is in `{self.url}` already; drop it first, or give this run "
                "another name (`--name`)"
            )
        self._write(file, record.to_text())
        return self._where(file)

    def trust(self, name: str, *, trusted: bool, note: str | None = None) -> Record:
        """Set whether a run counts, and return it."""
        record = self.get(name)
        changed = replace(record, trusted=trusted, note=record.note if note is None else note)
        self._write(name + _SUFFIX, changed.to_text())
        return changed

    def drop(self, name: str) -> None:
        """Delete a run; a damaged file can be dropped, too."""
        if name + _SUFFIX not in (self._names() or []):
            self.get(name)  # raises, naming those that are there
        try:
            self._fs.rm(self._inner(name + _SUFFIX))
        except Exception as error:
            raise BaselineError(f"cannot delete `{self._where(name)}`: {error}") from error

    def _names(self) -> list[str] | None:
        """Return the JSON files, None where there is no folder."""
        try:
            if not self._fs.isdir(self._root):
                return None
            listed = self._fs.ls(self._root, detail=True, refresh=True)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise BaselineError(f"cannot list the baseline `{self.url}`: {error}") from error
        files = (item["name"].rsplit("/", 1)[-1] for item in listed if item["type"] == "file")
        return sorted(name for name in files if name.endswith(_SUFFIX))

    def _read(self, file: str) -> bytes:
        try:
            data: bytes = self._fs.cat_file(self._inner(file))
        except Exception as error:
            raise BaselineError(f"cannot read `{self._where(file)}`: {error}") from error
        return data

    def _write(self, file: str, text: str) -> None:
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(self._inner(file), text.encode())
        except Exception as error:
            raise BaselineError(f"cannot write `{self._where(file)}`: {error}") from error

    def _inner(self, file: str) -> str:
        return f"{self._root.rstrip('/')}/{file}"

    def _where(self, file: str) -> str:
        return f"{self.url}/{file}"


def record_name(run_id: str | None, when: str) -> str:
    """Return a file name for a run: its run id, else the time."""
    return _ODD.sub("-", run_id or when).strip("-.") or "run"
