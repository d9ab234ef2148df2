"""What lies in a live trace folder, read without the reader."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa


def rows(folder: Path, table: str, *, torn: bool = False) -> list[dict]:
    """All complete rows of `table`, in the order in which they were written.

    A stream may end amid a batch only if `torn`.
    """
    found: list[dict] = []
    paths = (folder / "live").glob(f"{table}-*.arrows")
    for path in sorted(paths, key=lambda p: p.stat().st_mtime_ns):
        with pa.ipc.open_stream(str(path)) as stream:
            try:
                for batch in stream:
                    found += batch.to_pylist()
            except (pa.ArrowInvalid, OSError):
                if not torn:
                    raise
    return found


def closed_rows(folder: Path, table: str) -> list[dict]:
    """The rows of spans or requests that have ended."""
    return [row for row in rows(folder, table) if row["end_ns"] is not None]


def process_files(folder: Path) -> list[dict]:
    return [json.loads(p.read_text()) for p in (folder / "live").glob("process-*.json")]
