"""Reading a trace: what rows, clocks and manifests mean, whatever process wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from live_streams import counter, frames, request, rows_of, span, write_live, write_process

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace.schema import TABLES

# -- rows ----------------------------------------------------------------------------------


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


# -- clocks, manifest, cost ----------------------------------------------------------------


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
