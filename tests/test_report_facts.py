"""What a report may not get wrong: each test is a figure that could mislead."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.analyzers.device_time.per_window import VersionRow
from rlinsight.analyzers.device_time.throughput import throughput
from rlinsight.analyzers.document import plain_value
from rlinsight.analyzers.trust import doubts
from rlinsight.cli.selection import of_pools
from rlinsight.report.text import print_report
from rlinsight.report.units import device_seconds, percent


def text_of(report) -> str:
    console = Console(width=240, record=True, file=io.StringIO())
    print_report(report, console)
    return console.export_text()


@pytest.fixture
def two_steps(tmp_path) -> Timeline:
    t = Timeline(tmp_path / "t")
    for step, start in ((1, 0), (2, 10)):
        t.step(step, start, start + 10)
        t.span("trainer", "wait_samples", start, start + 6)
        t.span("trainer", "update_actor", start + 6, start + 10)
        t.trained(f"s{step}", start + 6, (60, 140), step)
    t.gen(0, 20)
    return t


def test_short_training_beside_generation_is_not_taking_turns(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 20)
    t.span("trainer", "update_actor", 0, 1.5)
    t.gen(0, 20)
    report = t.open().analyze()
    assert (report.overlap.overlap_ratio, report.overlap.hidden_share) == (0.075, 1.0)
    assert report.verdict.bound == "rollout"


def test_aborted_samples_count_as_invalid_though_they_were_never_trained(two_steps):
    two_steps.writer.sample(sample_uid="x", fate="aborted", produced_ns=5 * S)
    assert two_steps.open().analyze().quality.invalid_ratio == pytest.approx(1 / 3)


def test_a_validation_behind_the_last_step_counts_for_accuracy(two_steps):
    for at, value in ((0, 0.1), (21, 0.4)):
        two_steps.writer.metric("val-core/x/acc", value, step=at, ts_ns=at * S)
    (accuracy,) = two_steps.open().analyze().quality.accuracy
    assert (accuracy.first, accuracy.last) == (0.1, 0.4)


def test_tokens_and_samples_each_have_their_own_interval(tmp_path):
    """Steady samples of ever longer responses: only the token rate varies."""
    t = Timeline(tmp_path / "t")
    rows = []
    for i in range(8):
        t.trained(f"s{i}", 10 * i + 5, (0, 100 * i), i)
        start, end = 10 * i * S, 10 * (i + 1) * S
        rows.append(VersionRow(i, start, end, 10.0, {}, 100 * i, 1))
    rate = throughput(t.open().samples.collect(), (0, 80 * S), 2, rows)
    assert (rate.samples_per_s.low, rate.samples_per_s.high) == (0.1, 0.1)
    tokens = rate.tokens_per_s_per_device
    assert tokens.value == pytest.approx(2800 / 80 / 2)
    assert tokens.low < tokens.value < tokens.high


def test_samples_of_unknown_length_are_no_throughput_of_zero_tokens(tmp_path):
    t = Timeline(tmp_path / "t")
    t.trained("a", 5, (None, None), 1)
    rate = throughput(t.open().samples.collect(), (0, 10 * S), 1)
    assert (rate.trained_samples, rate.trained_tokens) == (1, None)
    assert rate.tokens_per_s_per_device.value is None


def test_a_step_or_window_without_lengths_has_no_tokens_and_the_others_keep_theirs(tmp_path):
    t = Timeline(tmp_path / "t")
    for step, tokens in ((1, (60, 140)), (2, (None, None))):
        start = 10 * (step - 1)
        t.writer.marker("param_sync", lane="replica0", param_version=step, ts_ns=start * S)
        t.step(step, start, start + 10)
        t.span("trainer", "update_actor", start, start + 10, step=step)
        t.trained(f"s{step}", start + 5, tokens, step)
    report = t.open().analyze()
    assert [(row.tokens, row.samples) for row in report.steps] == [(200, 1), (None, 1)]
    windows = [(row.trained_tokens, row.trained_samples) for row in report.versions]
    assert windows == [(200, 1), (None, 1)]


def test_one_lane_does_not_change_what_the_whole_job_yields(two_steps):
    trace = two_steps.open()
    whole, one = trace.analyze(), trace.analyze(lanes=["trainer"])
    assert one.throughput == whole.throughput


def test_a_trace_without_steps_is_not_outside_of_them(tmp_path):
    t = Timeline(tmp_path / "t")
    t.gen(0, 20)
    report = t.open().analyze()
    assert report.outside_steps is None
    assert "outside steps" not in text_of(report)


def test_a_negative_coverage_is_shown(two_steps):
    report = two_steps.open().analyze()
    worse = replace(report, coverage=replace(report.coverage, measured=-0.05))
    assert "-5.0 %" in text_of(worse)


def test_verls_figure_is_of_the_same_window(two_steps):
    for at, value in ((10, 0.9), (20, 0.2)):
        two_steps.writer.metric("fully_async/trainer/idle_ratio", value, ts_ns=at * S, step=at)
    trace = two_steps.open()
    assert trace.analyze(window=(10 * S, 20 * S)).pools["trainer"].framework_idle_ratio == 0.2


def test_a_wait_in_which_the_same_devices_generate_is_no_idle_ratio(tmp_path):
    hybrid = rlinsight.Lane("replica1", role="replica", devices=["n0/0"], engine_kind="hybrid")
    t = Timeline(tmp_path / "t", rlinsight.Topology(TOPOLOGY.devices, [*TOPOLOGY.lanes, hybrid]))
    t.step(1, 0, 10)
    t.gen(0, 6, lane="replica1")
    for key, value in (("timing_s/gen", 6.0), ("timing_s/step", 10.0)):
        t.writer.metric(key, value, step=1, ts_ns=10 * S)
    trainer = t.open().analyze().pools["trainer"]
    assert trainer.framework_idle_ratio is None
    assert [figure.value for figure in trainer.framework_figures] == [pytest.approx(0.6)]


def test_syncs_outside_of_the_window_are_left_out(two_steps):
    for at in (5, 15):
        two_steps.writer.marker(
            "param_sync", lane="trainer", param_version=at, ts_ns=at * S, attrs={"total_s": 1.0}
        )
    trace = two_steps.open()
    assert [s.version for s in trace.analyze(window=(0, 10 * S)).sync.syncs] == [5]


def test_periodic_bubbles_are_wall_time_whatever_number_of_devices_idles(tmp_path):
    devices = [
        rlinsight.Device(f"n0/{i}", node="n0", index=i, kind="cpu", pool="trainer")
        for i in range(4)
    ]
    lanes = [rlinsight.Lane("trainer", role="trainer")]
    t = Timeline(tmp_path / "t", rlinsight.Topology(devices, lanes))
    for step in range(1, 21):
        start, late = 10 * step, 4 if step % 5 == 0 else 0
        t.step(step, start, start + 10)
        t.span("trainer", "update_actor", start + late, start + 10)
    (pattern,) = t.open().analyze(window=(10 * S, 210 * S)).balance.periodic
    assert (pattern.period_steps, pattern.phase, pattern.mean_s) == (5, 0, pytest.approx(4.0))


def test_steps_that_were_cut_are_no_steps_without_bubbles(tmp_path):
    """Every step waits; a window over half of them must not find a pattern in the cut."""
    t = Timeline(tmp_path / "t")
    for step in range(1, 21):
        t.step(step, 10 * step, 10 * step + 10)
        t.span("trainer", "update_actor", 10 * step + 3, 10 * step + 10)
    assert t.open().analyze(window=(110 * S, 210 * S)).balance.periodic == ()


def test_an_alarm_comes_with_the_last_event_of_each_lane(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 10)
    t.span("trainer", "update_actor", 0, 10)
    t.span("trainer", "update_actor", 10, None)
    t.span("rollouter", "paused", 10, 5000)
    report = t.open().analyze()
    assert [alarm.kind for alarm in report.liveness.alarms][:1] == ["open_phase"]
    text = text_of(report)
    assert "Last event of each lane" in text
    assert "update_actor began" in text


def test_a_trace_of_metrics_alone_shows_its_phases(tmp_path):
    t = Timeline(tmp_path / "t", rlinsight.Topology())
    for step in (1, 2, 3):
        for key, value in (("gen", 6.0), ("update_actor", 3.0), ("step", 10.0)):
            t.writer.metric(f"timing_s/{key}", value, step=step, ts_ns=10 * step * S)
    report = t.open().analyze()
    text = " ".join(text_of(report).split())
    assert report.verdict.doubts[1] == "no device time was recorded"
    assert "Mean step, from its metrics" in text
    assert "the wait for samples says: rollout-bound" in text


def test_a_file_that_could_not_be_read_is_a_doubt(two_steps):
    report = two_steps.open().analyze()
    torn = replace(report.trust, skipped_files={"spans.arrow": "torn"})
    assert "files of the trace that could not be read: 1" in doubts(torn, report.window, 4)


def test_a_sampler_of_devices_that_are_not_there_is_no_doubt(two_steps):
    two_steps.writer.hook("devices.nvml", "skipped", "NVML: shared library not found")
    report = two_steps.open().analyze()
    assert list(report.trust.hooks_skipped) == ["devices.nvml"]
    assert not any("hooks" in doubt for doubt in report.verdict.doubts)
    failed = replace(report.trust, hook_errors={"rollouter.lane": 3})
    assert "hooks that failed or were skipped: 1" in doubts(failed, report.window, 4)


def test_a_foreign_file_beside_the_trace_is_no_doubt(two_steps):
    two_steps.writer.flush()
    (two_steps.path / "notes.bin").write_bytes(b"x")
    report = two_steps.open().analyze()
    assert report.trust.skipped_files == {}
    assert not any("files" in doubt for doubt in report.verdict.doubts)


def test_json_has_no_nan():
    assert plain_value({"a": math.nan, "b": (math.inf, 1.0)}) == {"a": None, "b": [None, 1.0]}


def test_a_pool_restricts_the_json(two_steps):
    document = of_pools(two_steps.open().analyze().to_dict(), ["rollouter"])
    assert list(document["pools"]) == ["rollouter"]
    assert document["bubbles"] == []
    json.dumps(document)


def test_rounding_hides_nothing():
    assert [percent(r) for r in (0.9997, 1.0, 0.0001)] == ["99.97 %", "100.0 %", "0.01 %"]
    assert [device_seconds(s) for s in (0.0, 12.3456, 0.000012)] == ["0.000", "12.346", "1.2e-05"]
