"""From a trace to what the gate keeps of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from gating import SAMPLES, gate_runs, judged, metric
from timelines import S, Timeline

import rlinsight
from rlinsight.analyzers.gate.columns import MOST
from rlinsight.analyzers.gate.identity import differing, identity, identity_key
from rlinsight.analyzers.gate.matching import match
from rlinsight.analyzers.gate.metrics import metrics
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.observe import observe
from rlinsight.analyzers.gate.variance import ratio_variance
from rlinsight.errors import TraceError
from rlinsight.trace.manifest import Manifest, update_manifest

MODES = ("sync", "colocate_async", "separate_async", "fully_async")


@pytest.fixture(scope="module", params=MODES)
def sample(request):
    trace = rlinsight.open(SAMPLES / request.param)
    return trace.analyze(), observe(trace)


def values(run: Observation) -> dict[str, float]:
    return {name: m.series.value for name, m in metrics(run).items() if m.series is not None}


# -- real runs -----------------------------------------------------------------------------


def test_the_figures_are_those_of_the_report(sample):
    report, run = sample
    found = values(run)
    throughput = report.throughput
    assert found["tokens_per_s_per_device"] == pytest.approx(
        throughput.tokens_per_s_per_device.value
    )
    assert found["samples_per_s"] == pytest.approx(throughput.samples_per_s.value)
    assert found["recording_overhead"] == report.trust.hook_share
    for name, pool in report.pools.items():
        assert found[f"idle.{name}"] == pytest.approx(pool.idle_ratio)
    for total in report.bubbles.totals:
        assert found[f"bubble.{total.owner}.{total.cause}"] == pytest.approx(total.share)


def test_the_mean_lag_is_that_of_the_report(sample):
    report, run = sample
    assert values(run)["lag_versions"] == pytest.approx(report.staleness.worst_token.mean_versions)


def test_the_windows_tile_the_steady_part(sample):
    report, run = sample
    assert sum(run.windows["seconds"]) == pytest.approx(report.window.duration_s)
    assert run.count >= 8
    for name, pool in report.pools.items():
        for state, seconds in pool.ledger.items():
            assert sum(run.windows[f"{name}/{state}"]) == pytest.approx(seconds, abs=1e-6)


def test_every_logged_metric_is_kept(sample):
    _, run = sample
    assert {"timing_s/step", "actor/grad_norm", "response_length/mean"} <= run.logged.keys()
    assert run.not_finite == {}


def test_it_survives_its_json(sample):
    _, run = sample
    again = Observation.from_dict(json.loads(json.dumps(run.to_dict(), allow_nan=False)))
    assert again.to_dict() == run.to_dict()
    assert values(again) == pytest.approx(values(run), rel=1e-4)


def test_matching_tells_lengths_and_validations_from_noise(sample):
    """Each run beside itself: what is left is at most 0.8 of the error of tokens/s."""
    _, run = sample
    series = metrics(run)["tokens_per_s_per_device"].series
    matched = match([series, series], ["validations", "checkpoints", "length"])
    errors = [
        math.sqrt(ratio_variance(amount, series.per).variance)
        for amount in (series.amount, matched.amounts[0])
    ]
    assert errors[1] < 0.8 * errors[0]


def test_a_baseline_is_small(sample):
    _, run = sample
    assert len(json.dumps(run.to_dict())) < 80_000


# -- runs of known making ------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_the_runs_of_the_simulation_are_what_a_trace_of_them_gives(tmp_path, seed):
    """So the false-alarm rates that are measured on the former hold for the latter."""
    kind = gate_runs.Kind()
    made = gate_runs.observation(kind, seed)
    read = observe(rlinsight.open(gate_runs.write(tmp_path / "t", kind, seed)))
    names = ("seconds", "tokens", "samples", "lengths", "steps", "step_s", "sync_s", "validations",
             "trainer/train.update_actor", "trainer/bubble.wait_samples")  # fmt: skip
    last = read.count
    for name in names:
        assert read.windows[name] == pytest.approx(made.windows[name][-last:], abs=1e-6), name
    assert read.count >= 20


def timeline(path: Path, versions: int, step_s: float = 10.0, **header) -> Timeline:
    t = Timeline(path, **header)
    for i in range(versions):
        start = i * step_s
        t.step(i, start, start + step_s)
        t.span("trainer", "update_actor", start, start + step_s / 2, step=i)
        t.trained(f"s{i}", start + 1, (60, 140), i)
        t.writer.marker("param_sync", lane="replica0", param_version=i, ts_ns=round(start * S))
    return t


def validating(path: Path, versions: int) -> Timeline:
    """Steps of 10 s, every fifth with a validation of 4 s after it."""
    t, at = Timeline(path), 0.0
    for i in range(versions):
        t.writer.marker("param_sync", lane="replica0", param_version=i, ts_ns=round(at * S))
        t.step(i, at, at + 10)
        t.trained(f"s{i}", at + 1, (60, 140 + i % 3), i)
        at += 10
        if i % 5 == 4:
            t.span("trainer", "validate", at, at + 4, step=i)
            at += 4
    return t


def test_a_longer_run_is_matched_at_the_same_share_of_validations(tmp_path):
    """Its windows are added up in groups, and a group has no more validations per window."""
    runs = []
    for name, versions in (("short", 60), ("long", 240)):
        t = validating(tmp_path / name, versions)
        t.writer.close()
        runs.append(observe(rlinsight.open(tmp_path / name)))
    short, long = runs
    assert long.count <= MOST < 240
    assert max(long.windows["validations"]) < 1
    row = metric(judged(long, short), "samples_per_s")
    assert row.matched
    assert row.relative == pytest.approx(0, abs=0.03)  # a rate is not linear in the share


def test_many_windows_are_added_up_in_groups(tmp_path):
    t = timeline(tmp_path / "t", 200)
    run = observe(t.open())
    assert MOST / 2 < run.count <= MOST
    assert sum(run.windows["samples"]) == pytest.approx(200, abs=2)
    assert values(run)["step_time_s"] == pytest.approx(10.0)


def test_unknown_lengths_in_a_group_of_windows_are_as_long_as_its_others(tmp_path):
    """200 steps of 200 tokens in 10 s on two devices; of every second one the length is unknown."""
    t = Timeline(tmp_path / "t")
    for i in range(200):
        t.step(i, 10 * i, 10 * i + 10)
        t.trained(f"s{i}", 10 * i + 1, (60, None if i % 2 else 140), i)
        t.writer.marker("param_sync", lane="replica0", param_version=i, ts_ns=10 * i * S)
    run = observe(t.open())
    assert run.count <= MOST
    assert values(run)["tokens_per_s_per_device"] == pytest.approx(10.0, rel=0.02)


def test_the_sliver_at_the_end_joins_its_neighbour(tmp_path):
    t = timeline(tmp_path / "t", 10)
    t.writer.marker("param_sync", lane="replica0", param_version=10, ts_ns=round(99.9 * S))
    run = observe(t.open())
    assert min(run.windows["seconds"]) == pytest.approx(10.0)
    assert sum(run.windows["seconds"]) == pytest.approx(90.0)


def test_without_version_windows_steps_are_the_windows(tmp_path):
    t = Timeline(tmp_path / "t")
    for i in range(6):
        t.step(i, i * 10, i * 10 + 9)
        t.trained(f"s{i}", i * 10 + 1, (60, 140), i)
    run = observe(t.open())
    assert run.windows["seconds"] == (10.0,) * 5 + (9.0,)


def test_a_logged_nan_is_counted_and_not_dropped(tmp_path):
    t = timeline(tmp_path / "t", 8)
    for i in range(8):
        value = float("nan") if i == 5 else 0.4
        t.writer.metric("perf/mfu", value, step=i, ts_ns=round((i * 10 + 9) * S))
    run = observe(t.open())
    assert run.not_finite == {"perf/mfu": 1}
    assert [value for value in run.logged["perf/mfu"] if value is not None] == [0.4] * 6


def test_nothing_trained_is_unknown_and_not_zero(tmp_path):
    t = Timeline(tmp_path / "t")
    for i in range(6):
        t.step(i, i * 10, i * 10 + 10)
    found = metrics(observe(t.open()))
    assert found["samples_per_s"].series is None
    assert found["samples_per_s"].why == "the trace has no trained sample"


# -- runs that cannot be judged ------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exit_code": 1}, "found exit code 1"),
        ({"notes": {"smoke": True}}, "found a smoke run"),
    ],
)
def test_a_run_that_measures_nothing_is_refused(tmp_path, changes, message):
    timeline(tmp_path / "t", 8).writer.close()
    update_manifest(tmp_path / "t", **changes)
    with pytest.raises(TraceError, match=message):
        observe(rlinsight.open(tmp_path / "t"))


@pytest.mark.parametrize(("exit_code", "usable"), [(0, True), (None, False)])
def test_an_alarm_about_a_run_that_succeeded_is_a_doubt(tmp_path, exit_code, usable):
    """Its processes may take long to end; one that nobody saw succeed may stand still."""
    t = timeline(tmp_path / "t", 8)
    t.span("trainer", "update_actor", 80, None, step=8)
    t.writer.counter("queue_depth", 1, ts_ns=4000 * S)
    t.writer.close()
    update_manifest(tmp_path / "t", exit_code=exit_code)
    trace = rlinsight.open(tmp_path / "t")
    alarm = trace.analyze().verdict.alarm
    assert alarm
    if usable:
        assert alarm in observe(trace).doubts
    else:
        with pytest.raises(TraceError, match="found an alarm"):
            observe(trace)


# -- identity ------------------------------------------------------------------------------


def manifest(**config) -> Manifest:
    return Manifest(
        mode="sync",
        engine="vllm",
        config={"data": {"train_batch_size": 8}, "trainer": {"experiment_name": "a"}} | config,
        versions={"verl": "0.9.1", "python": "3.11.7", "rlinsight": "0.1.0"},
    )


def test_what_is_part_of_the_identity():
    assert identity(manifest()) == {
        "mode": "sync",
        "engine": "vllm",
        "versions.verl": "0.9.1",
        "versions.python": "3.11",
        "config.data.train_batch_size": "8",
    }


def test_where_things_lie_is_no_part_of_it():
    here, there = (manifest(model={"path": f"{place}/qwen"}) for place in ("/mnt/a", "/tmp/b"))
    assert identity(here) == identity(there)
    assert identity(here)["config.model.path"] == "qwen"
    assert identity(manifest(model={"path": "Qwen/Qwen3-0.6B"}))["config.model.path"] == (
        "Qwen/Qwen3-0.6B"
    )


def test_differing_keys_come_with_both_values_hardware_first():
    one = {"mode": "sync", "config.a": "1", "hardware.nodes": "1"}
    other = {"mode": "sync", "config.a": "2", "hardware.nodes": "2", "config.b": "x"}
    assert differing(one, other) == {
        "hardware.nodes": ("1", "2"),
        "config.a": ("1", "2"),
        "config.b": (None, "x"),
    }
    assert next(iter(differing(one, other))) == "hardware.nodes"
    assert differing(one, other, ["config.*", "hardware.*"]) == {}


def test_the_key_is_of_the_content():
    assert identity_key({"a": "1", "b": "2"}) == identity_key({"b": "2", "a": "1"})
    assert identity_key({"a": "1"}) != identity_key({"a": "2"})


def test_the_modes_differ():
    keys = {identity_key(identity(rlinsight.open(SAMPLES / mode).manifest)) for mode in MODES}
    assert len(keys) == len(MODES)


def test_samples_of_unknown_length_are_as_long_as_the_others_of_their_window(tmp_path):
    t = timeline(tmp_path / "t", 8)
    for i in range(8):
        t.writer.sample(sample_uid=f"u{i}", fate="trained", consumed_ns=(10 * i + 5) * S)
    whole = observe(timeline(tmp_path / "whole", 8).open())
    half = observe(t.open())
    known = {name: sum(run.windows["tokens"]) for name, run in (("half", half), ("whole", whole))}
    assert known["half"] == 2 * known["whole"]
    assert sum(half.windows["samples"]) == 2 * sum(whole.windows["samples"])
