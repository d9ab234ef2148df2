"""A disk that is full, absent or silent costs rows, never the training."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest
from live_rows import process_files, rows
from small_disks import small_disk

import rlinsight
from rlinsight.trace.stream import TableStream


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A real file system of 256 KiB that can be filled up."""
    with small_disk(tmp_path / "disk", 256 << 10) as made:
        yield made


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            filler.writelines(repeat(bytes(4096)))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_drops_rows_counts_them_and_says_so_once(disk, capsys):
    with rlinsight.TraceWriter(disk / "t", flush_interval_s=3600) as w:
        w.counter("x", 0)
        w.flush()
        fill(disk / "filler")
        for i in range(1, 3):
            for j in range(20_000):
                w.counter("x", i * 1e6 + j * 0.001)
            w.flush()
        (disk / "filler").unlink()
        w.counter("x", 3)
    process = process_files(disk / "t")[0]
    stored = rows(disk / "t", "counters", torn=True)
    assert process["dropped"]["counters"] == 40_000
    assert [r["value"] for r in stored] == [0.0, 3.0]
    assert capsys.readouterr().err.count("rows are being dropped") == 1
    assert len(list((disk / "t" / "live").glob("counters-*"))) == 2


def test_a_folder_that_cannot_be_written_does_not_stop_training(tmp_path, capsys):
    (tmp_path / "t").write_text("a file stands where the folder should be")
    with rlinsight.TraceWriter(tmp_path / "t") as w:
        w.counter("x", 1)
    assert "rows are being dropped" in capsys.readouterr().err


def test_a_disk_that_hangs_does_not_keep_the_program_from_ending(tmp_path, monkeypatch, capsys):
    answers = threading.Event()
    monkeypatch.setattr(TableStream, "append", lambda *_: answers.wait(60))
    monkeypatch.setattr("rlinsight.trace.flusher._PATIENCE_S", 0.2)
    w = rlinsight.TraceWriter(tmp_path / "t", flush_interval_s=0.01)
    w.counter("x", 1)
    try:
        w.close()
        assert "the disk does not answer" in capsys.readouterr().err
        w.counter("x", 2)
        assert w.buffers["counters"].dropped == 1
    finally:
        answers.set()
