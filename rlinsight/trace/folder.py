"""A trace folder, on a local disk or behind an fsspec URL."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from rlinsight.errors import TraceError


@dataclass(frozen=True)
class Entry:
    """One file (or folder) in a trace folder; `name` is relative to it, with `/`."""

    name: str
    size: int
    is_file: bool


class Folder(Protocol):
    """What reading a trace needs of the place where it lies."""

    def entries(self, sub: str = "") -> list[Entry]:
        """List a folder, sorted by name; empty when it does not exist. Raises OSError."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading. Raises OSError."""

    def open_arrow(self, name: str) -> Any:
        """Open a file for random access by Arrow. Raises OSError."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes. Raises OSError."""

    def where(self, name: str = "") -> str:
        """Return the path or URL of a file, for messages."""


class LocalFolder:
    """A trace folder on a local disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def entries(self, sub: str = "") -> list[Entry]:
        try:
            with os.scandir(self.path / sub) as found:
                return sorted((_local_entry(sub, item) for item in found), key=lambda e: e.name)
        except FileNotFoundError:
            return []

    def open(self, name: str) -> IO[bytes]:
        return self._regular(name).open("rb")

    def open_arrow(self, name: str) -> Any:
        # Not memory-mapped: a file that shrinks under a map kills the process.
        return pa.OSFile(str(self._regular(name)), "rb")

    def size(self, name: str) -> int:
        return (self.path / name).stat().st_size

    def where(self, name: str = "") -> str:
        return str(self.path / name)

    def _regular(self, name: str) -> Path:
        """Return the path of a file. Raises OSError for what would block, such as a pipe."""
        path = self.path / name
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "neither a file nor a link to one", str(path))
        return path


class RemoteFolder:
    """A trace folder behind an fsspec URL, such as `s3://bucket/run` or `memory://run`."""

    def __init__(self, url: str) -> None:
        import fsspec

        self._url = url.rstrip("/")
        try:
            self._fs, self._root = fsspec.core.url_to_fs(url)
        except Exception as error:
            raise TraceError(f"cannot open `{url}`: {one_line(error)}") from error

    def entries(self, sub: str = "") -> list[Entry]:
        try:
            with _as_os_errors():
                found = self._fs.ls(self._inner(sub), detail=True, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        named = ((item["name"].rstrip("/").rsplit("/", 1)[-1], item) for item in found)
        entries = (
            Entry(f"{sub}/{name}" if sub else name, item["size"] or 0, item["type"] == "file")
            for name, item in named
        )
        return sorted(entries, key=lambda entry: entry.name)

    def open(self, name: str) -> IO[bytes]:
        # Without read-ahead: a window must not fetch what it does not need.
        with _as_os_errors():
            opened: IO[bytes] = self._fs.open(self._inner(name), "rb", cache_type="none")
        return opened

    def open_arrow(self, name: str) -> Any:
        return pa.PythonFile(self.open(name), mode="r")

    def size(self, name: str) -> int:
        with _as_os_errors():
            return int(self._fs.size(self._inner(name)) or 0)

    def where(self, name: str = "") -> str:
        return f"{self._url}/{name}" if name else self._url

    def _inner(self, name: str) -> str:
        return f"{self._root}/{name}" if name else str(self._root)


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """Return the folder at a local path or an fsspec URL.

    Raises TraceError for a URL whose storage cannot be reached, and for text that is no path.
    """
    text = os.fspath(path)
    if not text or "\0" in text:
        raise TraceError(f"expected a path or URL of a trace, found {text!r}")
    return RemoteFolder(text) if "://" in text else LocalFolder(text)


def one_line(error: Exception) -> str:
    """Return what an error of a storage says, its type where it says nothing."""
    text = " ".join(str(error).split())
    return text if text else type(error).__name__


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Every storage has exceptions of its own; a reader knows OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {one_line(error)}") from error


@contextmanager
def arrow_file(folder: Folder, name: str) -> Iterator[Any]:
    """Open a compacted table as an Arrow file reader. Raises OSError or an ArrowException."""
    with folder.open_arrow(name) as source:
        yield pa.ipc.open_file(source)


def _local_entry(sub: str, item: os.DirEntry[str]) -> Entry:
    try:
        size, is_file = item.stat().st_size, item.is_file()
    except OSError:  # a dangling link, or removed meanwhile
        size, is_file = 0, True
    return Entry(f"{sub}/{item.name}" if sub else item.name, size, is_file)
