"""Compacted tables are sorted and indexed, so that a window reads only its batches."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from live_streams import counter, span, write_live

import rlinsight
from rlinsight.trace.compact import compact
from rlinsight.trace.files import find_files
from rlinsight.trace.folder import RemoteFolder
from rlinsight.trace.reader import Trace


def test_any_arrow_reader_finds_a_sorted_table_with_its_index(tmp_path: Path) -> None:
    write_live(tmp_path, "counters", [counter(ts, ts) for ts in (5, 3, 1, 4, 2)])
    compact(tmp_path, batch_rows=2)
    with pa.ipc.open_file(str(tmp_path / "counters.arrow")) as reader:
        assert reader.read_all().column("ts_ns").to_pylist() == [1, 2, 3, 4, 5]
        index = json.loads(reader.schema.metadata[b"rlinsight.index"])
    assert index == {
        "rows": [2, 2, 1],
        "first_ns": [1, 3, 5],
        "last_ns": [2, 4, 5],
        "open_rows": [0, 0, 0],
    }
    # The head of the file repeats the schema; streaming readers see only that one.
    assert (tmp_path / "counters.arrow").read_bytes().count(b'{"rows":[2,2,1]') == 2


def test_a_window_reads_only_its_batches(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(i * 10, i * 10 + 5, lane=f"lane{i}") for i in range(40)])
    compact(tmp_path, batch_rows=4)
    table = rlinsight.open(tmp_path).files.compacted["spans"]
    assert len(table.batch_numbers(None)) == 10
    assert table.batch_numbers((100, 115)) == [2]
    assert table.batch_numbers((1000, 2000)) == []


class CountedFile(io.BytesIO):
    """A remote file that counts the bytes that are fetched."""

    fetched = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.fetched += len(data)
        return data


class CountedFolder(RemoteFolder):
    """A remote folder that keeps the files it opened."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.opened: list[CountedFile] = []

    def open_arrow(self, name: str) -> Any:
        with self.open(name) as file:
            self.opened.append(CountedFile(file.read()))
        return pa.PythonFile(self.opened[-1], mode="r")


def test_a_window_of_a_remote_table_fetches_its_batches_and_the_footer(tmp_path: Path) -> None:
    rows = [span(i * 10, i * 10 + 5, attrs={"n": os.urandom(99).hex()}) for i in range(10_000)]
    write_live(tmp_path, "spans", rows)
    compact(tmp_path, batch_rows=100)
    size = (tmp_path / "spans.arrow").stat().st_size
    folder = CountedFolder(f"file://{tmp_path}")
    trace = Trace(find_files(folder))
    assert trace.table("spans", (50_000, 51_000)).collect().height == 100
    header, window = (file.fetched for file in folder.opened)
    assert header < size * 0.03
    assert window - header < size * 0.02
    folder.opened.clear()
    trace.table("spans", (50_000, 51_000)).select("lane").collect()
    assert folder.opened[0].fetched - header < size * 0.002


def test_huge_rows_make_smaller_batches(tmp_path: Path) -> None:
    rows = [span(i, i + 1, attrs={"k": "x" * (4 << 20)}) for i in range(12)]
    write_live(tmp_path, "spans", rows)
    compact(tmp_path)
    trace = rlinsight.open(tmp_path)
    assert trace.files.compacted["spans"].batch_count == 2
    assert trace.spans.collect().height == 12
