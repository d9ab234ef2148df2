"""Reading a trace: what rows mean, whatever state the files are in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from live_streams import (
    counter,
    frames,
    request,
    rows_of,
    span,
    stream,
    stream_metadata,
    write_live,
    write_process,
)

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace import upgrade
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES


def test_rows_keep_nulls_types_and_column_order(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(10, 20, step=3, attrs={"reason": "drain"}), span(5, None)])
    frame = rlinsight.open(tmp_path).spans.collect()
    assert frame.columns == TABLES["spans"].names
    assert rows_of(frame, "start_ns", "end_ns", "step") == [(5, None, None), (10, 20, 3)]
    assert frame["activity"].dtype == pl.String
    assert frame["attrs"].to_list() == [None, [{"key": "reason", "value": "drain"}]]


def test_every_table_has_its_schema_even_when_empty(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    trace = rlinsight.open(tmp_path)
    for name, frame in frames(trace).items():
        assert frame.columns == TABLES[name].names
        assert frame.height == 0
    assert trace.time_range is None


def test_an_open_span_is_gone_once_it_was_closed(tmp_path: Path) -> None:
    # Two equal spans are open at a flush, a third begins later; one of the first two ends.
    write_live(tmp_path, "spans", [span(0, None), span(0, None)], [span(0, 4), span(5, None)])
    spans = rlinsight.open(tmp_path).spans.collect()
    assert rows_of(spans, "start_ns", "end_ns") == [(0, None), (0, 4), (5, None)]


def test_a_closed_span_of_another_process_closes_nothing(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(0, None)], pid=1)
    write_live(tmp_path, "spans", [span(0, 4)], pid=2)
    spans = rlinsight.open(tmp_path).spans.collect()
    assert rows_of(spans, "start_ns", "end_ns") == [(0, None), (0, 4)]


def test_a_process_that_had_to_begin_a_second_file_closes_its_spans_there(tmp_path: Path) -> None:
    first = write_live(tmp_path, "spans", [span(0, 4)], pid=1)
    first.rename(first.with_name("spans-n0-1-2.arrows"))
    write_live(tmp_path, "spans", [span(0, None)], pid=1)
    assert rows_of(rlinsight.open(tmp_path).spans.collect(), "end_ns") == [(4,)]


def test_requests_close_by_id_time_lane_and_attempt(tmp_path: Path) -> None:
    write_live(
        tmp_path,
        "requests",
        [request("a", 1, None), request("a", 1, None, attempt=1), request("b", 2, None)],
        [request("a", 1, 7, finish="stop"), request("b", 2, 9, lane="replica1")],
    )
    requests = rlinsight.open(tmp_path).requests.collect()
    assert rows_of(requests, "request_id", "attempt", "end_ns") == [
        ("a", 1, None),
        ("a", None, 7),
        ("b", None, None),
        ("b", None, 9),
    ]


def test_a_sample_told_by_two_processes_is_one_row(tmp_path: Path) -> None:
    produced = {"sample_uid": "s", "group_uid": "g", "produced_ns": 5, "response_tokens": 9}
    trained = {"sample_uid": "s", "consumed_ns": 8, "fate": "trained", "trained_step": 2}
    late = {"sample_uid": "s", "fate": "unconsumed"}  # the rollouter, when it stopped
    write_live(tmp_path, "samples", [produced], [late], pid=2)
    write_live(tmp_path, "samples", [trained], [{"sample_uid": "t", "produced_ns": 1}], pid=1)
    samples = rlinsight.open(tmp_path).samples.collect()
    columns = ("sample_uid", "produced_ns", "consumed_ns", "response_tokens", "fate")
    assert rows_of(samples, *columns) == [("t", 1, None, None, None), ("s", 5, 8, 9, "trained")]


@pytest.mark.parametrize("first", [True, False])
def test_the_most_final_fate_wins_in_any_order(tmp_path: Path, first: bool) -> None:
    rows = [{"sample_uid": "s", "fate": "dropped_stale"}, {"sample_uid": "s", "fate": "aborted"}]
    write_live(tmp_path, "samples", rows if first else rows[::-1])
    assert rows_of(rlinsight.open(tmp_path).samples.collect(), "fate") == [("dropped_stale",)]


def test_rows_are_in_time_order_and_equal_times_in_order_of_writing(tmp_path: Path) -> None:
    write_live(tmp_path, "counters", [counter(7, 1), counter(3, 2)], [counter(3, 3)], pid=2)
    write_live(tmp_path, "counters", [counter(3, 4)], pid=10)
    counters = rlinsight.open(tmp_path).counters.collect()
    assert rows_of(counters, "ts_ns", "value") == [(3, 2.0), (3, 3.0), (3, 4.0), (7, 1.0)]


def test_a_window_holds_what_overlaps_it(tmp_path: Path) -> None:
    rows = [span(0, 5), span(0, 10), span(12, 14), span(10, 10), span(20, 30), span(1, None)]
    write_live(tmp_path, "spans", rows)
    inside = rlinsight.open(tmp_path).table("spans", (5, 20)).collect()
    assert rows_of(inside, "start_ns", "end_ns") == [(0, 10), (1, None), (10, 10), (12, 14)]


def test_unknown_tables_and_backward_windows_are_refused(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(0, 1)])
    trace = rlinsight.open(tmp_path)
    with pytest.raises(TraceError, match="found `span`"):
        trace.table("span")  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="found \\(5, 3\\)"):
        trace.table("spans", (5, 3))


# -- what is wrong with files ---------------------------------------------------------------


def test_what_cannot_be_used_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(0, 1)])
    live = tmp_path / "live"
    (live / "spans-n0-2.arrows").touch()
    (live / "spans-n0-3.arrows").write_bytes(b"\xff\xff\xff\xff\x10")
    (live / "spans-n0-4.arrows").write_bytes(b"GIF89a, not an Arrow stream")
    (live / "frames-n0-5.arrows").write_bytes(b"x")
    (live / "process-n0-6.json").write_text('{"node": "n0"')
    (live / "core.1234").write_bytes(b"x")
    (tmp_path / "manifest.json").write_text("{]")
    (tmp_path / "model.safetensors").write_bytes(b"x")
    (tmp_path / "console.log").write_text("step 1")
    trace = rlinsight.open(tmp_path)
    assert rows_of(trace.spans.collect(), "start_ns", "end_ns") == [(0, 1)]
    reasons = {Path(skipped.path).name: skipped.reason for skipped in trace.skipped}
    assert reasons.keys() == {
        "spans-n0-2.arrows", "spans-n0-3.arrows", "spans-n0-4.arrows", "frames-n0-5.arrows",
        "process-n0-6.json", "core.1234", "manifest.json", "model.safetensors",
    }  # fmt: skip
    assert reasons["spans-n0-2.arrows"] == "empty"
    assert reasons["spans-n0-3.arrows"] == "cut before its first batch"
    assert "not an Arrow stream" in reasons["spans-n0-4.arrows"]
    assert reasons["manifest.json"].startswith("damaged")


@pytest.mark.parametrize("read_first", [True, False])
def test_a_torn_tail_is_named_whether_or_not_it_was_read(tmp_path: Path, read_first: bool) -> None:
    path = write_live(tmp_path, "spans", [span(0, 1)], [span(2, 3)])
    path.write_bytes(path.read_bytes()[:-7])
    trace = rlinsight.open(tmp_path)
    if read_first:
        assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
    (skipped,) = trace.skipped
    assert skipped.path == str(path)
    assert "cut or is being written" in skipped.reason


def test_a_batch_with_scrambled_strings_ends_the_reading_of_its_file(tmp_path: Path) -> None:
    path = write_live(tmp_path, "spans", [span(0, 1)], [span(2, 3, lane="rollouter")])
    path.write_bytes(path.read_bytes().replace(b"rollouter", b"rollou\xff\xfe\xfd"))
    trace = rlinsight.open(tmp_path)
    assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
    (skipped,) = trace.skipped
    assert "damaged" in skipped.reason


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    readable = write_live(tmp_path, "spans", [span(0, 1)], pid=1)
    secret = write_live(tmp_path, "spans", [span(2, 3)], pid=2)
    secret.chmod(0)
    with AsOrdinaryUser(tmp_path, readable.parent):
        trace = rlinsight.open(tmp_path)
        assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
        assert [(s.path, s.reason) for s in trace.skipped] == [
            (str(secret), "cannot be read: Permission denied")
        ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "found none of them"),
        (lambda path: path.mkdir(), "found none of them"),
        (lambda path: path.write_text("x"), "Not a directory"),
    ],
    ids=["absent", "empty", "a file"],
)
def test_no_trace_is_one_clear_sentence(tmp_path: Path, make, message: str) -> None:
    path = tmp_path / "trace"
    make(path)
    with pytest.raises(TraceError, match=message) as error:
        rlinsight.open(path)
    assert str(path) in str(error.value)


HOSTILE = ["", "a\nb", "nul\0nul", "🐍", "\u202ertl", "'; drop table spans; --", "x" * 1_000_000]


def test_hostile_strings_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [
        span(i, i + 1, activity=f"other:{text}", lane=text, attrs={text: text})
        for i, text in enumerate(HOSTILE)
    ]
    write_live(tmp_path, "spans", rows)
    spans = rlinsight.open(tmp_path).spans.collect()
    assert spans["lane"].to_list() == HOSTILE
    assert spans["attrs"].to_list() == [[{"key": text, "value": text}] for text in HOSTILE]


def test_a_lane_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    data, _ = stream("spans", [[span(0, 1)]], node="../../etc", pid=1)
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "spans-n0-1.arrows").write_bytes(data)
    assert rlinsight.open(tmp_path).spans.collect().height == 1


# -- schema versions ------------------------------------------------------------------------


def write_version_0(folder: Path) -> None:
    """A stream of a version that never was: `begin_ns` for `start_ns`, no `step`, no lane."""
    fields = [
        pa.field("begin_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("activity", pa.string()),
    ]
    schema = pa.schema(fields, stream_metadata("spans", "n0", 1, version=0))
    batch = pa.record_batch([[3, 9], [4, None], ["update_actor", "reward"]], schema=schema)
    (folder / "live").mkdir(parents=True)
    with pa.ipc.new_stream(str(folder / "live" / "spans-n0-1.arrows"), schema) as writer:
        writer.write_batch(batch)


def from_version_0(name: str, table: pa.Table) -> pa.Table:
    table = upgrade.renamed(table, {"begin_ns": "start_ns"})
    return upgrade.filled(table, "lane", "trainer", pa.string())


def test_an_older_version_is_upgraded_on_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(upgrade.UPGRADES, 0, from_version_0)
    write_version_0(tmp_path)
    spans = rlinsight.open(tmp_path).spans.collect()
    assert spans.columns == TABLES["spans"].names
    assert rows_of(spans, "start_ns", "end_ns", "activity", "lane", "step") == [
        (3, 4, "update_actor", "trainer", None),
        (9, None, "reward", "trainer", None),
    ]


def test_compaction_writes_the_current_version(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(upgrade.UPGRADES, 0, from_version_0)
        write_version_0(tmp_path)
        before = frames(rlinsight.open(tmp_path))
        rlinsight.compact(tmp_path)
    after = frames(rlinsight.open(tmp_path))
    assert all(after[name].equals(before[name]) for name in TABLES)


def test_a_version_without_upgrade_is_skipped_and_named(tmp_path: Path) -> None:
    write_version_0(tmp_path)
    (skipped,) = rlinsight.open(tmp_path).skipped
    assert skipped.reason == "schema version 0 can no longer be read"


def test_a_newer_stream_is_refused(tmp_path: Path) -> None:
    schema = TABLES["spans"].with_metadata(stream_metadata("spans", "n0", 1, SCHEMA_VERSION + 1))
    (tmp_path / "live").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "live" / "spans-n0-1.arrows"), schema):
        pass
    with pytest.raises(TraceError, match=r"found version 2 in .*; upgrade rlinsight"):
        rlinsight.open(tmp_path)


def test_a_newer_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(TraceError, match="upgrade rlinsight"):
        rlinsight.open(tmp_path)


def test_a_required_column_that_holds_null_is_no_row(tmp_path: Path) -> None:
    fields = [field.with_nullable(True) for field in TABLES["counters"]]
    schema = pa.schema(fields, stream_metadata("counters", "n0", 1))
    batch = pa.record_batch(
        [pa.array([1]), pa.array([None], fields[1].type), pa.array(["q"]).dictionary_encode(),
         pa.array([1.0])],
        schema=schema,
    )  # fmt: skip
    (tmp_path / "live").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "live" / "counters-n0-1.arrows"), schema) as writer:
        writer.write_batch(batch)
    trace = rlinsight.open(tmp_path)
    assert trace.counters.collect().height == 0
    (skipped,) = trace.skipped
    assert "column `name` holds null" in skipped.reason


# -- clocks, manifest, cost -----------------------------------------------------------------


def test_times_of_another_node_are_put_on_the_reference_clock(tmp_path: Path) -> None:
    estimates = [{"at_ns": 1_000, "offset_ns": 500, "residual_ns": 10, "rtt_ns": 20}]
    clock = {"reference": "n0", "nodes": {"n1": {"estimates": estimates}}}
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": 1, "clock": clock}))
    write_live(tmp_path, "spans", [span(100, 200)], node="n0")
    write_live(tmp_path, "spans", [span(550, None), span(700, 900)], node="n1")
    expected = [(50, None), (100, 200), (200, 400)]
    assert rows_of(rlinsight.open(tmp_path).spans.collect(), "start_ns", "end_ns") == expected
    rlinsight.compact(tmp_path)
    assert rows_of(rlinsight.open(tmp_path).spans.collect(), "start_ns", "end_ns") == expected


def test_lanes_of_a_node_without_known_clock_are_marked(tmp_path: Path) -> None:
    lanes = {"lanes": [{"id": "replica0", "role": "replica"}]}
    write_process(tmp_path, node="n0", pid=1, topology={"lanes": [{"id": "t", "role": "trainer"}]})
    write_process(tmp_path, node="n1", pid=2, topology=lanes)
    (tmp_path / "manifest.json").write_text(json.dumps({"clock": {"reference": "n0"}}))
    assert rlinsight.open(tmp_path).uncalibrated_lanes == {"replica0", "n1/2"}


def test_what_processes_say_completes_the_manifest(tmp_path: Path) -> None:
    hook = {"status": "installed", "reason": None, "errors": 0}
    gone = {"status": "skipped", "reason": "no attribute `fit`", "errors": 0}
    (tmp_path / "live").mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps({"run_id": "r7", "config": {"a": 1}}))
    write_process(
        tmp_path, pid=1, hooks={"actor": hook, "critic": gone}, dropped={"spans": 2},
        hook_ns=5, notes={"mode": "sync", "config": {"a": 2}, "placement": "x"},
    )  # fmt: skip
    failed = {**hook, "errors": 3, "reason": "KeyError: step"}
    write_process(tmp_path, pid=2, hooks={"actor": failed}, dropped={"spans": 1}, hook_ns=6)
    trace = rlinsight.open(tmp_path)
    manifest = trace.manifest
    assert (manifest.run_id, trace.mode, manifest.config) == ("r7", "sync", {"a": 1})
    assert manifest.notes == {"placement": "x"}
    assert (manifest.dropped, manifest.hook_ns) == ({"spans": 3}, 11)
    actor, critic = manifest.hooks["actor"], manifest.hooks["critic"]
    assert (actor.installed, actor.failed, actor.errors) == (2, 1, 3)
    assert (critic.skipped, critic.reasons) == (1, ("no attribute `fit`",))


def test_opening_does_not_import_polars(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(0, 1)])
    code = (
        "import sys, rlinsight; trace = rlinsight.open(sys.argv[1]); trace.skipped, trace.mode;"
        "assert 'polars' not in sys.modules; assert trace.spans.collect().height == 1"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)


# -- behind a URL ---------------------------------------------------------------------------


@pytest.fixture
def memory_url(tmp_path: Path):
    import fsspec

    fs = fsspec.filesystem("memory")
    yield "memory://trace"
    if fs.exists("/trace"):
        fs.rm("/trace", recursive=True)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_trace_behind_a_url_reads_the_same(
    tmp_path: Path, memory_url: str, compacted: bool
) -> None:
    import fsspec

    write_live(tmp_path, "spans", [span(0, 1), span(3, None)], [span(2, 3, lane="x")])
    write_process(tmp_path, notes={"mode": "sync"})
    (tmp_path / "live" / "spans-n0-9.arrows").touch()
    if compacted:
        rlinsight.compact(tmp_path)
    expected = rlinsight.open(tmp_path)
    fsspec.filesystem("memory").put(f"{tmp_path}/", "/trace/", recursive=True)
    for url in (memory_url, f"file://{tmp_path}"):
        trace = rlinsight.open(url)
        assert trace.spans.collect().equals(expected.spans.collect())
        assert trace.mode == "sync"
        assert [s.reason for s in trace.skipped] == ["empty"]
        assert trace.skipped[0].path == f"{url}/live/spans-n0-9.arrows"
        window = trace.table("spans", (2, 3)).collect()
        assert rows_of(window, "start_ns") == [(2,)]


def test_an_unknown_protocol_is_one_clear_sentence() -> None:
    with pytest.raises(TraceError, match="cannot open `nosuch://x`"):
        rlinsight.open("nosuch://x")


class AsOrdinaryUser:
    """Give up root for a moment, since nothing is unreadable to root."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def __enter__(self) -> None:
        if os.geteuid() != 0:
            return
        for folder in (*self.folders, *self.folders[0].parents):
            if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/pytest"):
                folder.chmod(0o755)
        os.seteuid(65534)

    def __exit__(self, *_: object) -> None:
        if os.getuid() == 0:
            os.seteuid(0)
