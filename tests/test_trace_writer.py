"""The writer: what training processes call, and what becomes of rows that cannot be stored."""

from __future__ import annotations

import asyncio
import sys
import threading

import pyarrow as pa
import pytest
from live_rows import process_files, rows

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace.schema import TABLES

# -- rows ----------------------------------------------------------------------------------


def test_explicit_times_come_back_as_they_were_given(tmp_path):
    with rlinsight.TraceWriter(tmp_path / "t", mode="sync", config={"a": 1}) as w:
        w.span("update_actor", lane="trainer/rank0", start_ns=10, end_ns=20, step=3)
        w.request(request_id="r1", lane="replica0", submit_ns=1, end_ns=9, response_tokens=7)
        w.sample(sample_uid="s1", fate="trained", reward=0.5)
        w.counter("queue_depth", 12, lane="queue", ts_ns=5)
        w.metric("actor/loss", 0.25, step=3, ts_ns=6)
        w.marker("param_sync", lane="trainer", param_version=3, ts_ns=7, attrs={"k": 1})
    (span,) = rows(tmp_path / "t", "spans")
    assert span == {
        "start_ns": 10, "end_ns": 20, "activity": "update_actor", "lane": "trainer/rank0",
        "step": 3, "param_version": None, "attrs": None,
    }  # fmt: skip
    (request,) = rows(tmp_path / "t", "requests")
    assert (request["submit_ns"], request["end_ns"], request["response_tokens"]) == (1, 9, 7)
    assert request["first_token_ns"] is None
    assert rows(tmp_path / "t", "samples")[0]["reward"] == 0.5
    assert rows(tmp_path / "t", "counters")[0]["value"] == 12.0
    assert rows(tmp_path / "t", "metrics")[0]["key"] == "actor/loss"
    assert rows(tmp_path / "t", "markers")[0]["attrs"] == [("k", "1")]
    (process,) = process_files(tmp_path / "t")
    assert process["notes"] == {"mode": "sync", "config": {"a": 1}}
    assert process["ended_ns"] is not None
    assert process["rows"]["spans"] == 1


def test_every_stream_carries_the_schema_and_its_origin(tmp_path):
    with rlinsight.TraceWriter(tmp_path / "t", node="n0", run_id="run-7") as w:
        w.counter("x", 1.0)
    (path,) = (tmp_path / "t" / "live").glob("counters-n0-*.arrows")
    schema = pa.ipc.open_stream(str(path)).schema
    assert schema.remove_metadata() == TABLES["counters"]
    assert schema.metadata[b"rlinsight.run_id"] == b"run-7"
    assert schema.metadata[b"rlinsight.schema_version"] == b"1"


def test_span_context_manager_decorator_and_begin_end(tmp_path):
    @rlinsight.traced("reward", step=1)
    def score():
        return 42

    @rlinsight.traced("tool")
    async def call_tool():
        await asyncio.sleep(0.01)
        return "done"

    with rlinsight.recording(tmp_path / "t", lane="trainer"):
        with rlinsight.span("update_actor", step=3, param_version=2, micro_batches=4):
            pass
        assert score() == 42
        assert asyncio.run(call_tool()) == "done"
        opened = rlinsight.begin("wait_samples", step=4)
        opened.end()
        opened.end()  # a second end records nothing
    by_activity = {s["activity"]: s for s in rows(tmp_path / "t", "spans")}
    assert set(by_activity) == {"update_actor", "reward", "tool", "wait_samples"}
    assert by_activity["update_actor"]["attrs"] == [("micro_batches", "4")]
    assert by_activity["tool"]["end_ns"] - by_activity["tool"]["start_ns"] >= 10_000_000
    assert len(rows(tmp_path / "t", "spans")) == 4


def test_an_exception_passes_through_and_is_noted(tmp_path):
    with rlinsight.recording(tmp_path / "t"):
        with pytest.raises(KeyError), rlinsight.span("update_actor"):
            raise KeyError("x")
    assert rows(tmp_path / "t", "spans")[0]["attrs"] == [("error", "KeyError")]


def test_unknown_activities_are_kept_under_other(tmp_path):
    with rlinsight.recording(tmp_path / "t"):
        with rlinsight.span("my_phase"):
            pass
    assert rows(tmp_path / "t", "spans")[0]["activity"] == "other:my_phase"


def test_without_a_recording_everything_is_a_no_op(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with rlinsight.span("update_actor"):
        rlinsight.counter("x", 1)
        rlinsight.marker("pause")
        rlinsight.begin("step").end()
    assert list(tmp_path.iterdir()) == []


def test_a_second_folder_in_one_process_is_refused(tmp_path):
    with rlinsight.recording(tmp_path / "t"):
        with pytest.raises(TraceError, match="one recording per process"):
            rlinsight.start(tmp_path / "u")


def test_a_second_recording_of_the_process_does_not_overwrite_the_first(tmp_path):
    for value in (1, 2):
        with rlinsight.recording(tmp_path / "t"):
            rlinsight.counter("x", value)
    assert [r["value"] for r in rows(tmp_path / "t", "counters")] == [1.0, 2.0]
    assert len(process_files(tmp_path / "t")) == 2


# -- threads and buffers -------------------------------------------------------------------


def test_many_threads_lose_and_mix_nothing(tmp_path):
    with rlinsight.recording(tmp_path / "t", flush_interval_s=0.01):

        def work(thread: int) -> None:
            for i in range(2000):
                with rlinsight.span("tool", lane=f"lane{thread}", step=i):
                    pass

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    closed = [r for r in rows(tmp_path / "t", "spans") if r["end_ns"] is not None]
    seen = {(r["lane"], r["step"]) for r in closed}
    assert len(closed) == len(seen) == 16_000


def test_a_full_buffer_drops_and_counts_but_never_waits(tmp_path):
    with rlinsight.recording(tmp_path / "t", flush_interval_s=3600, max_buffered_rows=100) as w:
        w._flusher._lock.acquire()  # the flusher is stuck on a slow disk
        for i in range(500):
            w.counter("x", i)
        w._flusher._lock.release()
    stored = [r["value"] for r in rows(tmp_path / "t", "counters")]
    dropped = process_files(tmp_path / "t")[0]["dropped"]["counters"]
    assert len(stored) + dropped == 500
    assert stored == list(map(float, range(100)))


def test_an_importer_waits_instead_of_dropping(tmp_path):
    with rlinsight.TraceWriter(tmp_path / "t", max_buffered_rows=100) as w:
        for i in range(5000):
            w.counter("x", i, ts_ns=i)
    assert len(rows(tmp_path / "t", "counters")) == 5000


def test_a_closed_writer_takes_no_rows_writes_no_files_and_blocks_nobody(tmp_path):
    writer = rlinsight.TraceWriter(tmp_path / "t", max_buffered_rows=2, on_full="block")
    writer.counter("x", 1)
    writer.close()
    before = sorted(path.name for path in (tmp_path / "t" / "live").iterdir())
    for value in range(5):
        writer.counter("x", value)
    writer.flush()
    assert writer.buffers["counters"].dropped == 5
    assert len(writer.buffers["counters"]) == 0
    assert sorted(path.name for path in (tmp_path / "t" / "live").iterdir()) == before
    assert len(rows(tmp_path / "t", "counters")) == 1


# -- what cannot be stored -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "kept"),
    [
        ({"step": "three"}, 2),
        ({"start_ns": None}, 2),
        ({"start_ns": 2**70}, 2),
        ({"activity": 7}, 2),
        ({"attrs": [1, 2]}, 2),
        ({"lane": "tr\ud800ainer"}, 3),  # a lone surrogate is escaped, not dropped
        ({"attrs": {"k": "\ud800\0"}}, 3),
    ],
)
def test_a_row_that_cannot_be_stored_costs_only_itself(tmp_path, capsys, bad, kept):
    good = {"activity": "reward", "start_ns": 1, "end_ns": 2, "lane": "trainer"}
    with rlinsight.TraceWriter(tmp_path / "t") as w:
        w.span(**good)
        w.span(**{**good, **bad})
        w.span(**good)
    assert len(rows(tmp_path / "t", "spans")) == kept
    (process,) = process_files(tmp_path / "t")
    assert process["dropped"]["spans"] == 3 - kept
    assert ("cannot store" in capsys.readouterr().err) == (kept == 2)


def test_an_unknown_column_is_a_counted_drop_not_an_exception(tmp_path, capsys):
    with rlinsight.TraceWriter(tmp_path / "t") as w:
        w.sample(sample_uid="s", colour="blue")
        w.sample(sample_uid="s2")
    assert [r["sample_uid"] for r in rows(tmp_path / "t", "samples")] == ["s2"]
    assert process_files(tmp_path / "t")[0]["dropped"]["samples"] == 1
    assert "`colour`" in capsys.readouterr().err


class Unprintable:
    def __str__(self):
        raise RuntimeError("device-side assert")


@pytest.mark.parametrize(
    ("disturb", "dropped"),
    [
        (lambda w: w.span("step", start_ns=1, end_ns=2, attrs={"x": Unprintable()}), "spans"),
        (lambda w: w.begin_request(request_id="r", lane="l", colour=1).end(), "requests"),
    ],
)
def test_a_row_that_cannot_be_written_costs_only_itself(tmp_path, capsys, disturb, dropped):
    with rlinsight.TraceWriter(tmp_path / "t", flush_interval_s=60) as w:
        disturb(w)
        w.flush()
        w.counter("x", 1)
    assert len(rows(tmp_path / "t", "counters")) == 1
    (process,) = process_files(tmp_path / "t")
    assert {t: n for t, n in process["dropped"].items() if n} == {dropped: 1}
    assert "rlinsight: " in capsys.readouterr().err


def test_an_open_request_with_an_unknown_column_does_not_stop_the_flushing(tmp_path):
    with rlinsight.TraceWriter(tmp_path / "t", flush_interval_s=60) as w:
        w.begin_request(request_id="r", lane="l", colour=1)
        w.counter("x", 1)
        w.flush()
        assert len(rows(tmp_path / "t", "counters")) == 1


def test_a_note_without_a_json_form_costs_the_process_file_not_the_rows(tmp_path, capsys):
    with rlinsight.TraceWriter(tmp_path / "t", flush_interval_s=60) as w:
        w.note("placement", {("a", "b"): 1})
        w.counter("x", 1)
        w.flush()
        w.note("placement", {"a": 1})
    assert len(rows(tmp_path / "t", "counters")) == 1
    assert process_files(tmp_path / "t")[0]["notes"] == {"placement": {"a": 1}}
    assert "cannot write the process file" in capsys.readouterr().err


def test_a_process_without_standard_error_records_on(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with rlinsight.TraceWriter(tmp_path / "t") as w:
        w.request(colour=1)
        w.counter("x", 1)
    assert len(rows(tmp_path / "t", "counters")) == 1
