"""The first analysis, on timelines whose answers are computed by hand."""

from __future__ import annotations

import json

import pytest
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.analyzers.device_time.per_window import idle_interval
from rlinsight.errors import TraceError
from rlinsight.report.header import header_lines
from rlinsight.trace.manifest import update_manifest


@pytest.fixture
def run(tmp_path):
    """Two steps of 10 s: the trainer waits 4 s and 2 s, the replica pauses 10-14."""
    t = Timeline(tmp_path / "t")
    for step, start in ((1, 0), (2, 10)):
        t.step(step, start, start + 10, param_version=step - 1)
        wait = 4 if step == 1 else 2
        t.span("trainer", "wait_samples", start, start + wait, step=step)
        t.span("trainer", "update_actor", start + wait, start + 10, step=step)
        t.trained(f"s{step}", start + wait, (60, 140), step)
    t.gen(0, 10)
    t.span("rollouter", "paused", 10, 14, attrs={"reason": "staleness_quota"})
    t.gen(14, 20)
    return t


def test_idle_is_what_the_timeline_says(run):
    report = run.open().analyze()
    trainer, rollouter = report.pools["trainer"], report.pools["rollouter"]
    assert trainer.ledger == {"train.update_actor": 14.0, "bubble.wait_samples": 6.0}
    assert trainer.idle_ratio == pytest.approx(6 / 20)
    assert rollouter.ledger == {"generate": 16.0, "bubble.staleness_quota": 4.0}
    assert rollouter.idle_ratio == pytest.approx(4 / 20)


def test_throughput_is_over_all_devices_and_the_window(run):
    rate = run.open().analyze().throughput
    assert rate.trained_tokens == 400
    assert rate.tokens_per_s_per_device.value == pytest.approx(400 / 20 / 2)
    assert rate.samples_per_s.value == pytest.approx(2 / 20)


def test_steps_and_activities(run):
    report = run.open().analyze()
    assert [(s.step, s.duration_s, s.tokens) for s in report.steps] == [(1, 10, 200), (2, 10, 200)]
    assert report.steps[0].activities == {"wait_samples": 4.0, "update_actor": 6.0}
    waits = next(a for a in report.activities if a.activity == "wait_samples")
    assert (waits.role, waits.spans, waits.lane_seconds, waits.mean_s) == ("trainer", 2, 6, 3)


def test_activities_are_of_the_whole_run_and_beside_it_of_the_window(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 20)
    t.gen(0, 20)
    for start, end in ((0, 10), (5, 15), (16, None)):
        t.span("rollouter", "tool", start, end)
    (tool,) = [
        row for row in t.open().analyze(window=(8 * S, 20 * S)).activities if row.activity == "tool"
    ]
    assert (tool.spans, tool.open_spans, tool.mean_s) == (3, 1, 10.0)
    assert tool.span_seconds_in_window == 2 + 7 + 4


def test_a_window_restricts_every_pool(run):
    report = run.open().analyze(window=(10 * S, 15 * S))
    assert report.pools["rollouter"].ledger == {"bubble.staleness_quota": 4.0, "generate": 1.0}
    assert report.pools["trainer"].device_seconds == 5.0
    assert report.window.cut == "asked for"


def test_a_window_is_cut_to_what_was_recorded_and_must_hold_some_of_it(run):
    trace = run.open()
    report = trace.analyze(window=(-50 * S, 15 * S))
    assert (report.window.start_ns, report.window.end_ns) == (0, 15 * S)
    told = "within the 20.0 s that were recorded, found 30.0 to 40.0 s"
    with pytest.raises(TraceError, match=told):
        trace.analyze(window=(30 * S, 40 * S))


def test_of_some_lanes_the_overlap_of_the_run_is_not_known_and_that_is_doubted(run):
    report = run.open().analyze(lanes=["trainer"])
    assert report.overlap is None
    assert "only the devices of `trainer` are counted" in report.verdict.doubts


def test_an_interval_is_of_the_whole_window(tmp_path):
    """100 s before the first version count as well: it cannot be that of the versions alone."""
    t = Timeline(tmp_path / "t")
    t.span("trainer", "init", 0, 100)
    for i in range(10):
        start = 100 + 10 * i
        t.writer.marker("param_sync", lane="replica0", param_version=i, ts_ns=start * S)
        t.step(i + 1, start, start + 10, param_version=i)
        t.span("trainer", "wait_samples", start, start + 2)
        t.span("trainer", "update_actor", start + 2, start + 10)
        t.trained(f"s{i}", start + 2, (60, 140), i + 1)
    report = t.open().analyze(window=(0, 200 * S))
    rate = report.throughput.tokens_per_s_per_device
    assert rate.value == pytest.approx(2000 / 200 / 2)
    assert rate.low < rate.value < rate.high
    idle = report.pools["trainer"].idle_ratio
    assert idle == pytest.approx(20 / 200)
    low, high = idle_interval(report.versions, "trainer", (20.0, 200.0))
    assert low < idle < high


@pytest.mark.parametrize(("code", "doubted"), [(None, False), (0, False), (1, True), (137, True)])
def test_a_run_that_failed_says_so(run, code, doubted):
    run.writer.close()
    update_manifest(run.path, exit_code=code, ended_ns=20 * S)
    report = run.open().analyze()
    assert report.run.exit_code == code
    told = f"the run ended with exit code {code}"
    assert (told in report.verdict.doubts) == doubted
    assert (f"the training failed with exit code {code}" in str(header_lines(report))) == doubted


def test_the_largest_share_of_its_pool_comes_first(tmp_path):
    """The rollouts idle for more device time, 10 of 80 s; the trainer for more of its own."""
    rollout = [
        rlinsight.Device(f"r/{i}", node="r", index=i, kind="cpu", pool="rollout") for i in range(4)
    ]
    topology = rlinsight.Topology(
        devices=[TOPOLOGY.devices[0], *rollout],
        lanes=[
            *TOPOLOGY.lanes[:2],
            rlinsight.Lane("rollouter", role="rollouter"),
            rlinsight.Lane(
                "replica0", role="replica", devices=[device.id for device in rollout],
                engine_kind="standalone", capacity=4,
            ),
        ],
    )  # fmt: skip
    t = Timeline(tmp_path / "t", topology)
    t.step(1, 0, 20)
    t.span("trainer", "wait_samples", 0, 5)
    t.span("trainer", "update_actor", 5, 20)
    t.gen(0, 17)
    totals = t.open().analyze().bubbles.totals
    assert [(one.owner, one.device_seconds, one.share) for one in totals] == [
        ("trainer", 5.0, 0.25),
        ("rollouter", 12.0, 0.15),
    ]


def test_verls_own_figures_stand_beside_ours(run):
    for step, ratio in ((1, 0.5), (2, 0.7)):
        logged = {"step": step, "ts_ns": 10 * step * S}
        run.writer.metric("fully_async/trainer/idle_ratio", ratio, **logged)
        run.writer.metric("timing_s/gen", 3.0, **logged)
        run.writer.metric("timing_s/step", 10.0, **logged)
    run.writer.metric("fully_async/trainer/idle_ratio", float("nan"), step=3, ts_ns=20 * S)
    figures = run.open().analyze().pools["trainer"].framework_figures
    assert {f.key: f.value for f in figures} == {
        "fully_async/trainer/idle_ratio": pytest.approx(0.6),
        "timing_s/gen / timing_s/step": pytest.approx(0.3),
    }


def test_no_trained_sample_is_unknown_throughput_not_zero(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 10)
    rate = t.open().analyze().throughput
    assert rate.tokens_per_s_per_device.value is None
    assert rate.trained_samples is None


def test_an_open_phase_reaches_to_the_end_of_the_window(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 10)
    t.span("trainer", "update_actor", 2, None)
    report = t.open().analyze()
    assert report.pools["trainer"].ledger == {"train.update_actor": 8.0, "unattributed": 2.0}
    assert report.trust.open_intervals == 1


def test_validation_requests_are_overhead_not_generation(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 10)
    t.gen(0, 6)
    t.gen(4, 10, validate=True)
    ledger = t.open().analyze().pools["rollouter"].ledger
    assert ledger == {"generate": 4.0, "validate": 6.0}


def test_the_json_form_is_json(run):
    report = run.open().analyze()
    again = json.loads(json.dumps(report.to_dict()))
    assert again["schema_version"] == 1
    assert again["run"]["standalone_replicas"] == 1
    assert again["pools"]["trainer"]["idle_ratio"] == pytest.approx(0.3)


def test_an_empty_window_and_an_empty_trace_are_said_in_a_sentence(tmp_path, run):
    with pytest.raises(TraceError, match="ends after it starts"):
        run.open().analyze(window=(5, 5))
    empty = Timeline(tmp_path / "empty").open()
    with pytest.raises(TraceError, match="found none"):
        empty.analyze()
