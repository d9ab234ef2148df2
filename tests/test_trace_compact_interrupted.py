"""A compaction that is killed, or that no disk has room for, loses nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_streams import frames, span, two_processes, write_live
from small_disks import small_disk

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace.compact import compact
from rlinsight.trace.compacted_writer import CompactedWriter
from rlinsight.trace.schema import TABLES


class Killed(BaseException):
    """Raised by every file operation once the process is supposed to be dead."""


class Death:
    """Lets `left` file operations pass, and none after them: not even cleaning up."""

    operations = frozenset(
        {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.scandir", "shutil.rmtree"}
    )

    def __init__(self) -> None:
        self.left: int | None = None
        sys.addaudithook(self)  # cannot be taken away again

    def __call__(self, event: str, _arguments: Any) -> None:
        if self.left is None or event not in self.operations:
            return
        if self.left == 0:
            raise Killed
        self.left -= 1


def test_killed_at_any_file_operation_it_reads_the_same(tmp_path: Path) -> None:
    death = Death()
    survived = -1
    for operation in range(200):
        folder = tmp_path / str(operation)
        two_processes(folder)
        expected = frames(rlinsight.open(folder))
        death.left = operation
        try:
            compact(folder)
            survived = operation
        except Killed:
            pass
        finally:
            death.left = None
        for _ in ("as it was left", "compacted again"):
            found = frames(rlinsight.open(folder))
            assert all(found[name].equals(expected[name]) for name in TABLES), operation
            compact(folder)
        left = {path.name for path in folder.iterdir()}
        assert left == {"spans.arrow", "samples.arrow", "manifest.json"}, operation
        if survived >= 0:
            break
    assert survived > 20


def test_a_file_size_limit_leaves_the_live_files(tmp_path: Path) -> None:
    two_processes(tmp_path)
    expected = frames(rlinsight.open(tmp_path))
    code = "import sys; from rlinsight.trace.compact import compact; compact(sys.argv[1])"
    limited = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        capture_output=True,
        text=True,
        check=False,
    )
    last = limited.stderr.strip().splitlines()[-1]
    assert "TraceError: cannot compact" in last
    assert "its live files are kept" in last
    assert not (tmp_path / ".compacting").exists()
    found = frames(rlinsight.open(tmp_path))
    assert all(found[name].equals(expected[name]) for name in TABLES)


def test_a_full_disk_leaves_the_live_files(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 250_000) as disk:
        rows = [span(i, i + 1, attrs={"noise": os.urandom(40).hex()}) for i in range(3000)]
        write_live(disk, "spans", rows, compression="zstd")
        with pytest.raises(TraceError, match=r"no space left to compact .* free some space"):
            compact(disk)
        assert not (disk / ".compacting").exists()
        assert rlinsight.open(disk).spans.collect().height == 3000


def test_a_full_device_is_an_os_error() -> None:
    writer = CompactedWriter(
        Path("/dev/full"), "counters", {"name": ["q"], "lane": ["l"]}, {},
        max_rows=1 << 20, max_bytes=1, batch_rows=1,
    )  # fmt: skip
    with pytest.raises(OSError, match="No space left"):
        writer.finish()
    writer.abandon()
