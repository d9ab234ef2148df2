"""Compaction changes where rows lie, never which rows there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from live_streams import frames, rows_of, span, two_processes, write_live

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace.compact import compact
from rlinsight.trace.schema import TABLES


def test_only_compacted_files_are_left(tmp_path: Path) -> None:
    two_processes(tmp_path)
    report = compact(tmp_path)
    left = {path.name for path in tmp_path.rglob("*")}
    assert left == {"spans.arrow", "samples.arrow", "manifest.json"}
    assert report.tables["spans"].rows_in == 4
    assert report.tables["spans"].rows == 3
    assert report.tables["spans"].bytes == (tmp_path / "spans.arrow").stat().st_size
    assert report.kept == ()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["mode"], manifest["dropped"]) == ("sync", {"spans": 3})
    assert json.dumps(report.to_dict())


def test_once_more_changes_nothing(tmp_path: Path) -> None:
    two_processes(tmp_path)
    compact(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert compact(tmp_path).tables == {}
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_that_arrive_later_are_taken_in(tmp_path: Path) -> None:
    two_processes(tmp_path)
    compact(tmp_path)
    write_live(tmp_path, "spans", [span(3, 4, lane="late")], node="n1")
    mixed = rlinsight.open(tmp_path)
    assert mixed.is_live
    expected = frames(mixed)
    assert rows_of(expected["spans"], "start_ns") == [(0,), (1,), (3,), (5,)]
    compact(tmp_path)
    after = frames(rlinsight.open(tmp_path))
    assert all(after[name].equals(expected[name]) for name in TABLES)


def test_a_sample_told_in_a_file_that_arrives_later_is_one_row(tmp_path: Path) -> None:
    write_live(tmp_path, "samples", [{"sample_uid": "s", "produced_ns": 1}])
    compact(tmp_path)
    write_live(tmp_path, "samples", [{"sample_uid": "s", "fate": "trained"}], pid=2)
    for _ in range(2):
        samples = rlinsight.open(tmp_path).samples.collect()
        assert rows_of(samples, "produced_ns", "fate") == [(1, "trained")]
        compact(tmp_path)


def test_a_damaged_stream_stays_and_is_not_counted_twice(tmp_path: Path) -> None:
    path = write_live(tmp_path, "spans", [span(0, 1)], [span(2, 3, lane="rollouter")])
    path.write_bytes(path.read_bytes().replace(b"rollouter", b"rollou\xff\xfe\xfd"))
    report = compact(tmp_path)
    assert [Path(kept.path).name for kept in report.kept] == [path.name]
    for _ in range(2):
        trace = rlinsight.open(tmp_path)
        assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
        assert "damaged" in trace.skipped[0].reason
        assert compact(tmp_path).tables == {}
    assert path.exists()


def test_a_torn_tail_is_dropped_with_its_file(tmp_path: Path) -> None:
    path = write_live(tmp_path, "spans", [span(0, 1)], [span(2, 3)])
    path.write_bytes(path.read_bytes()[:-3])
    report = compact(tmp_path)
    assert "cut" in report.skipped[0].reason
    assert not path.exists()
    assert rows_of(rlinsight.open(tmp_path).spans.collect(), "start_ns") == [(0,)]


def test_the_files_of_a_process_that_still_runs_stay(tmp_path: Path) -> None:
    with rlinsight.TraceWriter(tmp_path, lane="trainer") as writer:
        writer.span("update_actor", start_ns=1, end_ns=2)
        writer.flush()
        assert [kept.reason for kept in compact(tmp_path).kept] == ["its process still runs"]
        assert rlinsight.open(tmp_path).spans.collect().height == 1
        writer.span("update_actor", start_ns=3, end_ns=4)
    assert rlinsight.open(tmp_path).spans.collect().height == 2
    compact(tmp_path)
    assert not (tmp_path / "live").exists()
    assert rlinsight.open(tmp_path).spans.collect().height == 2


def test_a_table_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    two_processes(tmp_path)
    (tmp_path / "spans.arrow").write_bytes(b"half a table")
    with pytest.raises(TraceError, match=r"`spans.arrow` is there but cannot be read"):
        compact(tmp_path)
    assert (tmp_path / "spans.arrow").read_bytes() == b"half a table"


@pytest.mark.parametrize("window", [None, (0, 9)])
def test_a_compacted_table_damaged_throughout_is_named(tmp_path: Path, window: Any) -> None:
    write_live(tmp_path, "spans", [span(i, i + 1) for i in range(999)])
    compact(tmp_path)
    path = tmp_path / "spans.arrow"
    with pa.ipc.open_file(str(path)) as reader:
        body = path.read_bytes().find(b"\x28\xb5\x2f\xfd")  # the first zstd frame
        assert reader.num_record_batches == 1
    data = bytearray(path.read_bytes())
    data[body : body + 40] = bytes(40)
    path.write_bytes(data)
    trace = rlinsight.open(tmp_path)
    assert trace.table("spans", window).collect().height == 0
    (skipped,) = trace.skipped
    assert skipped.path == str(path)
    assert "999 of 999 rows of table `spans` are left out" in skipped.reason


def test_a_url_cannot_be_compacted() -> None:
    with pytest.raises(TraceError, match="expected a local folder"):
        compact("memory://trace")
