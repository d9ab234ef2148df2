"""`live/process-<node>-<pid>.json`: what one recording process says about itself.

The file is padded and rewritten in place, so that a disk that has become full still takes
the drop counters, and a killed process leaves its last state behind.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

_BLOCK = 8192


class ProcessFile:
    """A small JSON document, kept current on disk.

    `write` raises OSError, and TypeError or ValueError for what has no JSON form.
    """

    def __init__(self, folder: Path, node: str, pid: int) -> None:
        self._path = folder / f"process-{node}-{pid}.json"
        self._fd: int | None = None
        self._last = b""

    def write(self, content: dict[str, Any]) -> None:
        """Replace the document, if it differs from what was written last."""
        data = json.dumps(content, default=str).encode("utf-8", "backslashreplace")
        if data == self._last:
            return
        padded = data.ljust(-(-(len(data) + 1) // _BLOCK) * _BLOCK - 1) + b"\n"
        fd = self._open()
        os.pwrite(fd, padded, 0)
        os.ftruncate(fd, len(padded))
        self._last = data

    def close(self) -> None:
        """Close the file; the document stays."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self.close()  # it was deleted: what is written to it is seen by nobody
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path = self._unused(self._path)
            self._fd = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o644)
        return self._fd

    @staticmethod
    def _unused(path: Path) -> Path:
        """A process may record twice, and pids are reused: never overwrite another's file."""
        number, candidate = 1, path
        while candidate.exists():
            number += 1
            candidate = path.with_name(f"{path.stem}-{number}.json")
        return candidate
