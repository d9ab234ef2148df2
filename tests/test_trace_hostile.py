"""Traces that something else wrote, or wrote wrongly: named, left out, and the rest is used."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow as pa
import pytest
from live_streams import frames, span, write_live, write_process

import rlinsight
from rlinsight.analyzers.simulate.knobs import knobs_of_run
from rlinsight.analyzers.staleness.coverage import sync_settings
from rlinsight.baselines.store import Store
from rlinsight.cli.selection import chosen_window
from rlinsight.cli.whatif_answer import loaded
from rlinsight.errors import BaselineError, ConfigError, RlinsightError, TraceError
from rlinsight.trace.manifest import update_manifest
from rlinsight.trace.schema import TABLES

TIMELINE = [span(0, 4, "wait_samples"), span(4, 10)]

WRONG_IN_A_MANIFEST = {
    "schema_version": "1",
    "mode": 5,
    "started_ns": "yesterday",
    "ended_ns": 10**30,
    "exit_code": True,
    "config": [1],
    "versions": {"verl": 9},
    "notes": "none",
    "topology": {"lanes": [{"id": {}, "role": "replica"}]},
    "clock": {"nodes": {"n0": {"estimates": [{"at_ns": 10**30}]}}},
    "processes": [{"node": "n0", "pid": "x"}],
}

WRONG_IN_A_PROCESS = {
    "pid": "1",
    "flushed_ns": "now",
    "rows": {"spans": "many"},
    "notes": "x",
    "hooks": {"trainer": {"status": None}},
    "errors": "full",
    "topology": {"devices": [{"id": "n0/0", "node": "n0", "index": 0, "kind": "cpu", "pool": "?"}]},
}


@pytest.mark.parametrize("key", WRONG_IN_A_MANIFEST)
def test_a_manifest_of_wrong_types_is_named_and_the_rows_are_used(tmp_path, key):
    write_live(tmp_path, "spans", TIMELINE)
    (tmp_path / "manifest.json").write_text(json.dumps({key: WRONG_IN_A_MANIFEST[key]}))
    trace = rlinsight.open(tmp_path)
    assert frames(trace)["spans"].height == 2
    (skipped,) = trace.skipped
    assert skipped.path.endswith("manifest.json")
    assert skipped.reason.startswith("damaged: ")


@pytest.mark.parametrize("key", WRONG_IN_A_PROCESS)
def test_a_process_file_of_wrong_types_is_named_and_the_rows_are_used(tmp_path, key):
    write_live(tmp_path, "spans", TIMELINE)
    write_process(tmp_path, **{key: WRONG_IN_A_PROCESS[key]})
    trace = rlinsight.open(tmp_path)
    assert frames(trace)["spans"].height == 2
    (skipped,) = trace.skipped
    assert "process-n0-" in skipped.path


def test_what_was_expected_and_found_is_in_the_reason(tmp_path):
    write_live(tmp_path, "spans", TIMELINE)
    write_process(tmp_path, flushed_ns="now")
    (skipped,) = rlinsight.open(tmp_path).skipped
    assert skipped.reason == (
        "damaged: expected `flushed_ns` of a process to be a whole number of 64 bits, found 'now'"
    )


def test_a_newer_manifest_is_refused_as_such_whatever_else_it_says(tmp_path):
    write_live(tmp_path, "spans", TIMELINE)
    newer = json.dumps({"schema_version": 2, "mode": {"of": "tomorrow"}})
    (tmp_path / "manifest.json").write_text(newer)
    with pytest.raises(TraceError, match="upgrade rlinsight"):
        rlinsight.open(tmp_path)
    with pytest.raises(TraceError, match="upgrade rlinsight"):
        update_manifest(tmp_path, exit_code=0)
    assert (tmp_path / "manifest.json").read_text() == newer


@pytest.mark.parametrize("name", ["manifest.json", "spans.arrow", "live/process-n0-1.json"])
def test_a_pipe_in_the_place_of_a_file_does_not_hang_the_reader(tmp_path, name):
    write_live(tmp_path, "spans", TIMELINE)
    os.mkfifo(tmp_path / name)
    trace = rlinsight.open(tmp_path)
    assert frames(trace)["spans"].height == 2
    assert [skipped.path for skipped in trace.skipped] == [str(tmp_path / name)]


def test_a_compacted_table_that_points_out_of_bounds_is_named_and_no_crash(tmp_path):
    schema = TABLES["spans"]
    rows = pa.Table.from_pylist([{**TIMELINE[0]}], schema=schema).to_batches()[0]
    wrong = pa.DictionaryArray.from_arrays(
        pa.array([10_000_000], pa.int32()), pa.array(["update_actor"]), safe=False
    )
    columns = [wrong if name == "activity" else rows.column(name) for name in schema.names]
    with pa.OSFile(str(tmp_path / "spans.arrow"), "wb") as sink:
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    trace = rlinsight.open(tmp_path)
    assert frames(trace)["spans"].height == 0
    assert "spans` are left out: batch 0 (" in trace.skipped[0].reason


def test_one_device_given_as_text_is_one_device():
    assert rlinsight.Lane("trainer", role="trainer", devices="n0/0").devices == ("n0/0",)


@pytest.mark.parametrize("value", ["soon", float("nan"), float("inf"), [1], {"a": 1}, None])
def test_a_setting_that_is_no_number_is_not_known(value):
    settings = sync_settings(
        {
            "async_training": {
                "staleness_threshold": value,
                "trigger_parameter_sync_step": value,
            }
        }
    )
    assert (settings.staleness, settings.sync_every, settings.sources) == (None, None, ())


@pytest.mark.parametrize(
    "url",
    ["zip://x::/nope.zip", "tar://x::memory://nope", "ftp://127.0.0.1:1/x", "data://,x", "\0"],
)
def test_a_storage_that_fails_in_its_own_way_is_one_sentence(url):
    with pytest.raises(TraceError, match=r"cannot (open|read)|expected a path"):
        rlinsight.open(url)


@pytest.mark.parametrize("url", ["zip://x::/nope.zip", "ftp://127.0.0.1:1/x", "data://,x"])
def test_a_baseline_in_a_storage_that_fails_is_one_sentence(url):
    with pytest.raises(BaselineError, match=r"cannot (open|list)"):
        Store(url).records()


@pytest.mark.parametrize("text", ["1e300:", ":1e300", "1e11:2e11"])
def test_a_window_beyond_all_times_is_refused(tmp_path, text):
    write_live(tmp_path, "spans", TIMELINE)
    with pytest.raises(RlinsightError, match="expected `--window START:END`"):
        chosen_window(rlinsight.open(tmp_path), text, None)


@pytest.mark.parametrize(
    ("key", "value"),
    [("staleness_threshold", float("nan")), ("require_batches", "four"), ("sync_step", 2**70)],
)
def test_a_recorded_setting_that_is_no_number_cannot_be_simulated(key, value):
    verl = {"sync_step": "trigger_parameter_sync_step"}.get(key, key)
    with pytest.raises(ConfigError, match=f"expected `{key}` to be a "):
        knobs_of_run("fully_async", {"async_training": {verl: value}})


@pytest.mark.parametrize("text", ["[]", "5", '"x"'])
def test_a_calibration_that_is_no_object_is_refused(tmp_path, text):
    (tmp_path / "saved.json").write_text(text)
    with pytest.raises(RlinsightError, match="expected a calibration"):
        loaded(str(tmp_path / "saved.json"))


def test_a_recording_goes_on_where_its_folder_was_deleted_and_says_so(tmp_path, capfd):
    writer = rlinsight.TraceWriter(tmp_path / "trace")
    writer.span("update_actor", lane="trainer", start_ns=0, end_ns=4)
    writer.flush()
    shutil.rmtree(tmp_path / "trace")
    writer.span("update_actor", lane="trainer", start_ns=4, end_ns=10)
    writer.close()
    trace = rlinsight.open(tmp_path / "trace")
    assert frames(trace)["spans"]["start_ns"].to_list() == [4]
    (process,) = trace.processes
    assert process.errors == ("a file of `spans` was deleted: its rows are lost",)
    assert "deleted" in capfd.readouterr().err
