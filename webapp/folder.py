"""Finding traces below a folder, and noticing that one has changed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlinsight.trace.files import is_trace
from rlinsight.trace.sources import LIVE

#: Deeper folders are not searched.
MAX_DEPTH: Final = 6
#: More traces than this are not listed.
MAX_TRACES: Final = 2000


@dataclass(frozen=True)
class Found:
    """A trace folder: its id in URLs, its path relative to the served folder, and its path.

    Bytes of a file name that are no text stand escaped in `name`: a page could not be sent.
    """

    id: str
    name: str
    path: Path


@dataclass(frozen=True)
class Stamp:
    """Changes whenever a file of a trace does. `modified_ns` is the latest change, epoch ns."""

    modified_ns: int
    size: int
    files: int

    def __str__(self) -> str:
        return f"{self.modified_ns:x}.{self.size:x}.{self.files:x}"


def find_traces(root: Path) -> list[Found]:
    """Return the traces in and below `root`, by name. A trace is not searched for more."""
    paths = sorted(_search(root, root, MAX_DEPTH))[:MAX_TRACES]
    return [Found(run_id(name), _as_text(name), path) for name, path in paths]


def run_id(name: str) -> str:
    """Return the id of a trace from its relative path: itself where a URL may hold it as it is.

    Otherwise the characters that it may not hold are replaced and a digest keeps ids apart.
    """
    slug = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:80]
    if slug == name:
        return name
    return f"{slug}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def _as_text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a trace folder; zeros when it is gone."""
    modified, size, files = 0, 0, 0
    for folder in (path, path / LIVE):
        for entry in _entries(folder):
            try:
                stat = entry.stat()
            except OSError:
                continue
            if entry.is_file():
                modified, size = max(modified, stat.st_mtime_ns), size + stat.st_size
                files += 1
    return Stamp(modified, size, files)


def _search(root: Path, folder: Path, depth: int) -> Iterator[tuple[str, Path]]:
    entries = list(_entries(folder))
    if is_trace(entry.name for entry in entries):
        name = folder.relative_to(root).as_posix()
        yield (root.name if name == "." else name), folder
        return
    for entry in entries if depth else ():
        if not entry.name.startswith(".") and _is_folder_inside(root, entry):
            yield from _search(root, Path(entry.path), depth - 1)


def _is_folder_inside(root: Path, entry: os.DirEntry[str]) -> bool:
    try:
        if not entry.is_symlink():
            return entry.is_dir()
        target = Path(entry.path).resolve(strict=True)
    except OSError:
        return False
    # A link to a folder around itself would be searched again and again.
    inside = target.is_relative_to(root) and not Path(entry.path).is_relative_to(target)
    return inside and target.is_dir()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []
