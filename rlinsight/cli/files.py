"""Files that a command is asked to write beside what it prints."""

from __future__ import annotations

from pathlib import Path

import typer

from rlinsight.errors import RlinsightError
from rlinsight.report.plain import line


def say_written(*paths: Path | None) -> None:
    """Name the files that were asked for and written."""
    for path in paths:
        if path is not None:
            typer.echo(f"wrote {line(str(path))}")


def write(path: Path, text: str) -> None:
    """Write `text` to `path`, whose folder is made. Raises RlinsightError where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise RlinsightError(f"cannot write `{path}`: {error}") from error
