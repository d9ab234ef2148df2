"""Compaction changes where rows lie, never which rows there are."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_streams import counter, frames, request, rows_of, span, write_live, write_process

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace.compact import compact
from rlinsight.trace.compacted_writer import CompactedWriter
from rlinsight.trace.files import find_files
from rlinsight.trace.folder import RemoteFolder
from rlinsight.trace.reader import Trace
from rlinsight.trace.schema import TABLES

_TIMES = st.integers(0, 50)
_SPANS = st.builds(
    span,
    _TIMES,
    st.none() | _TIMES,
    st.sampled_from(["update_actor", "reward"]),
    st.sampled_from(["trainer", "replica0"]),
    step=st.none() | st.integers(0, 3),
    attrs=st.none() | st.just({"reason": "drain"}),
)
_REQUESTS = st.builds(
    request,
    st.sampled_from("abc"),
    _TIMES,
    st.none() | _TIMES,
    attempt=st.none() | st.integers(0, 1),
    finish=st.none() | st.sampled_from(["stop", "length"]),
)
_SAMPLES = st.fixed_dictionaries(
    {"sample_uid": st.sampled_from("stuvw")},
    optional={
        "produced_ns": _TIMES,
        "consumed_ns": _TIMES,
        "reward": st.floats(0, 1),
        "fate": st.sampled_from(["trained", "aborted", "unconsumed", "lost"]),
    },
)
_COUNTERS = st.builds(counter, _TIMES, st.floats(allow_nan=False), st.sampled_from("xy"))
_TRACES = st.fixed_dictionaries(
    {
        table: st.lists(st.lists(rows, min_size=1, max_size=6), max_size=3)
        for table, rows in {
            "spans": _SPANS, "requests": _REQUESTS, "samples": _SAMPLES, "counters": _COUNTERS,
        }.items()
    }
)  # fmt: skip


def write_trace(folder: Path, trace: dict[str, list[list[dict[str, Any]]]]) -> None:
    """Write each list of rows as the stream of its own process, two batches each."""
    (folder / "live").mkdir(parents=True, exist_ok=True)
    for table, processes in trace.items():
        for pid, rows in enumerate(processes, 1):
            half = len(rows) // 2 or 1
            batches = [part for part in (rows[:half], rows[half:]) if part]
            write_live(folder, table, *batches, pid=pid)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(trace=_TRACES, memory_bytes=st.sampled_from([1 << 28, 2000, 1]), batch_rows=st.just(3))
def test_compaction_keeps_every_row_in_its_place(
    trace: dict[str, Any], memory_bytes: int, batch_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder, trace)
        before = frames(rlinsight.open(folder))
        compact(folder, memory_bytes=memory_bytes, batch_rows=batch_rows)
        after = rlinsight.open(folder)
        assert not after.is_live
        for table, frame in frames(after).items():
            assert frame.equals(before[table]), table  # type: ignore[index]


@settings(max_examples=60, deadline=None)
@given(trace=_TRACES, start=_TIMES, length=st.integers(0, 50))
def test_reading_a_window_equals_filtering(trace: dict[str, Any], start: int, length: int) -> None:
    window = (start, start + length)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder, trace)
        live = rlinsight.open(folder)
        expected = {table: live.table(table, window).collect() for table in TABLES}
        whole = live.spans.collect().rows()
        inside = [
            r for r in whole if r[0] < window[1] and (r[1] is None or r[1] > start or r[0] >= start)
        ]
        assert expected["spans"].rows() == inside
        compact(folder, batch_rows=2)
        trace_after = rlinsight.open(folder)
        for table in TABLES:
            assert trace_after.table(table, window).collect().equals(expected[table]), table


def example(folder: Path) -> None:
    write_live(folder, "spans", [span(5, None), span(0, 4)], [span(5, 9)], pid=1)
    write_live(folder, "spans", [span(1, 2, lane="rollouter")], pid=2, closed=True)
    write_live(folder, "samples", [{"sample_uid": "s", "produced_ns": 1}], pid=2)
    write_live(folder, "samples", [{"sample_uid": "s", "fate": "trained"}], pid=1)
    write_process(folder, pid=1, ended_ns=9, hooks={}, dropped={"spans": 1})
    write_process(folder, pid=2, dropped={"spans": 2}, notes={"mode": "sync"})


def test_only_compacted_files_are_left(tmp_path: Path) -> None:
    example(tmp_path)
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
    example(tmp_path)
    compact(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert compact(tmp_path).tables == {}
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_files_that_arrive_later_are_taken_in(tmp_path: Path) -> None:
    example(tmp_path)
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
    example(tmp_path)
    (tmp_path / "spans.arrow").write_bytes(b"half a table")
    with pytest.raises(TraceError, match=r"`spans.arrow` is there but cannot be read"):
        compact(tmp_path)
    assert (tmp_path / "spans.arrow").read_bytes() == b"half a table"


@pytest.mark.parametrize("window", [None, (0, 9)])
def test_a_damaged_compacted_table_is_one_sentence(tmp_path: Path, window: Any) -> None:
    write_live(tmp_path, "spans", [span(i, i + 1) for i in range(999)])
    compact(tmp_path)
    path = tmp_path / "spans.arrow"
    with pa.ipc.open_file(str(path)) as reader:
        body = path.read_bytes().find(b"\x28\xb5\x2f\xfd")  # the first zstd frame
        assert reader.num_record_batches == 1
    data = bytearray(path.read_bytes())
    data[body : body + 40] = bytes(40)
    path.write_bytes(data)
    with pytest.raises(
        (TraceError, pl.exceptions.ComputeError), match=r"spans\.arrow`, it is damaged"
    ):
        rlinsight.open(tmp_path).table("spans", window).collect()


def test_a_url_cannot_be_compacted() -> None:
    with pytest.raises(TraceError, match="expected a local folder"):
        compact("memory://trace")


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


# -- interrupted ----------------------------------------------------------------------------


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
        example(folder)
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
    example(tmp_path)
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


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """Mount a file system of `size` bytes."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs to mount a small file system, which takes root")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)
