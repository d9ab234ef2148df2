"""File systems that tests can fill up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes; skip the test where that may not be done."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs to mount a small file system, which takes root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
