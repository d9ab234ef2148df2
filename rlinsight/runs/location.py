"""Where a trace goes: a folder, or an fsspec URL that is filled when the run has ended."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinsight.errors import TraceError
from rlinsight.runs.config import RecordingConfig


@dataclass(frozen=True)
class Location:
    """A run records into `folder`; with a `url`, it is moved there afterwards."""

    folder: Path
    url: str | None = None

    @property
    def final(self) -> str:
        """Where the user opens the trace: as short as typed, never the spool folder."""
        if self.url is not None:
            return self.url
        try:
            return str(self.folder.relative_to(Path.cwd()))
        except ValueError:
            return str(self.folder)


def locate(config: RecordingConfig, run_id: str, *, now: float | None = None) -> Location:
    """Fill the template `config.trace`; a URL gets a spool folder in the temporary folder."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    text = config.trace.format(name=config.name, mode=config.mode or "unknown", time=stamp)
    if "://" not in text:
        return Location(Path(text).expanduser().absolute())
    return Location(Path(tempfile.gettempdir()) / "rlinsight-spool" / run_id, text.rstrip("/"))


def reachable(url: str) -> str | None:
    """Return why nothing can be written at an fsspec URL, or None."""
    try:
        filesystem, root = _filesystem(url)
        filesystem.makedirs(root, exist_ok=True)
    except Exception as error:
        return f"cannot write to `{url}`: {error or type(error).__name__}"
    return None


def upload(location: Location) -> str:
    """Copy the spool folder to the URL and remove it; return the URL.

    Raises TraceError when something did not arrive; the spool folder is kept then.
    """
    assert location.url is not None
    files = [path for path in sorted(location.folder.rglob("*")) if path.is_file()]
    try:
        filesystem, root = _filesystem(location.url)
        for path in files:
            _put(filesystem, path, f"{root}/{path.relative_to(location.folder).as_posix()}")
    except Exception as error:
        raise TraceError(
            f"the trace could not be copied to `{location.url}`: {error}; it is kept in "
            f"`{location.folder}`"
        ) from error
    shutil.rmtree(location.folder)
    return location.url


def _put(filesystem: Any, path: Path, target: str) -> None:
    filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
    filesystem.put_file(str(path), target)
    found, wanted = filesystem.size(target), path.stat().st_size
    if found != wanted:
        raise OSError(f"`{target}` has {found} bytes, expected {wanted}")


def _filesystem(url: str) -> tuple[Any, str]:
    import fsspec

    return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
