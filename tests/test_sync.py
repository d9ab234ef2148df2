"""Weight syncs: stages add up, the dominant one is named, growth raises an alarm."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from pathlib import Path

import pytest
from timelines import TOPOLOGY, S, Timeline

from rlinsight.analyzers.engines.cache_warm_up import cache_warm_up
from rlinsight.analyzers.sync.stages import STAGES, dominant, syncs, trend

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}


def report(t: Timeline):
    trace = t.open()
    return syncs(trace.spans.collect(), trace.markers.collect(), TOPOLOGY)


def stage(t: Timeline, name: str, start: float, end: float) -> None:
    t.span("trainer", f"other:weight_sync.{name}", start, end)


def worked_example(t: Timeline) -> None:
    """abort 0-5 with engines empty at 3, group and transfer 5-18, resume 18-19, end 20."""
    t.span("trainer", "weight_sync", 0, 20, param_version=3, attrs={"timer": "param_sync"})
    t.span("trainer", "other:weight_sync.total", 0, 20, attrs={"backend": "nccl"})
    stage(t, "abort", 0, 5)
    stage(t, "build_group", 5, 6)
    stage(t, "transfer", 6, 18)
    stage(t, "resume", 18, 19)
    t.span("replica0", "paused", 0, 19.5, attrs={"reason": "weight_sync"})
    t.writer.marker("abort", lane="replica0", ts_ns=3 * S, attrs={"aborted_requests": 7})


def test_the_worked_example_and_stages_that_add_up(tmp_path):
    t = Timeline(tmp_path / "t")
    worked_example(t)
    found = report(t)
    (sync,) = found.syncs
    assert (sync.pause_s, sync.drain_s, sync.transfer_s) == (2.0, 3.0, 13.0)
    assert (sync.resume_s, sync.other_s, sync.memory_s) == (1.0, 1.0, None)
    assert (sync.version, sync.stall_s, sync.aborted_requests, sync.backend) == (3, 19.5, 7, "nccl")
    assert sum(getattr(sync, f"{name}_s") or 0.0 for name in STAGES) == sync.total_s == 20.0
    assert (found.main, found.by_backend["nccl"].dominant) == ("nccl", "transfer")


def test_hybrid_and_standalone_syncs_are_not_averaged(tmp_path):
    t = Timeline(tmp_path / "t")
    for i in range(3):
        t.span("trainer", "weight_sync", 60 * i, 60 * i + 4, attrs={"backend": "nccl"})
        t.span("trainer", "weight_sync", 60 * i + 5, 60 * i + 6, attrs={"backend": "naive"})
    found = report(t)
    means = {name: kind.mean_s for name, kind in found.by_backend.items()}
    assert means == {"nccl": {"total": 4.0}, "naive": {"total": 1.0}}
    assert (found.main, found.growing) == ("nccl", False)


def test_a_sync_without_stages_has_a_total_and_nothing_invented(tmp_path):
    t = Timeline(tmp_path / "t")
    t.span("trainer", "weight_sync", 0, 2)
    (sync,) = report(t).syncs
    unknown = [f.name for f in fields(sync) if getattr(sync, f.name) is None]
    assert sync.total_s == 2.0
    assert {f"{name}_s" for name in STAGES} <= set(unknown)
    assert report(Timeline(tmp_path / "empty")) is None


def test_markers_alone_tell_the_stages_too(tmp_path):
    t = Timeline(tmp_path / "t")
    t.writer.marker(
        "param_sync", lane="trainer", param_version=2, ts_ns=10 * S,
        attrs={"total_s": 4.0, "abort_s": 1.0, "transfer_s": 2.5, "backend": "nccl"},
    )  # fmt: skip
    (sync,) = report(t).syncs
    assert (sync.start_ns, sync.pause_s, sync.transfer_s) == (6 * S, 1.0, 2.5)
    assert sync.other_s == pytest.approx(0.5)
    assert sync.drain_s is None


def test_case_weight_sync_breakdown(tmp_path):
    case = CASES["weight-sync-breakdown"]
    given = case["input"]
    assert (
        dominant({"pause": given["pause_s"], "broadcast": given["broadcast_s"]})
        == (case["expect"]["dominant"])
    )
    t = Timeline(tmp_path / "t")
    for i in range(20):
        slow = i == 19
        times = given["p95"] if slow else given
        start, sent = i * 60, times["pause_s"] + times["broadcast_s"]
        t.span("trainer", "weight_sync", start, start + times["sync_s"])
        stage(t, "abort", start, start + times["pause_s"])
        stage(t, "transfer", start + times["pause_s"], start + sent)
        t.span("replica0", "paused", start, start + times["stall_s"])
    found = report(t).by_backend["unknown"]
    assert found.dominant == "transfer"
    assert found.mean_s["transfer"] == pytest.approx(given["broadcast_s"], rel=0.01)
    assert found.mean_s["stall"] == pytest.approx(given["stall_s"], rel=0.01)
    assert given["pause_s"] < found.p95_s["pause"] < given["p95"]["pause_s"]


def test_a_sync_that_grows_from_seconds_to_minutes_is_an_alarm():
    """verl#4896: seconds, then 2-3 minutes, then 25 minutes."""
    found = trend([30, 4, 5, 8, 20, 60, 120, 150, 180, 400, 900, 1500])
    assert found.growing
    assert found.growth > 20


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_a_slow_first_sync_are_no_growth(seed):
    noise = random.Random(seed)
    found = trend([3.5] + [0.45 + noise.gauss(0, 0.05) for _ in range(20)])
    assert not found.growing
    assert found.growth == pytest.approx(1, abs=0.3)


def test_too_few_syncs_have_no_trend_and_constant_ones_do_not_grow():
    assert trend([1, 2, 3]) is None
    assert not trend([1.0] * 10).growing


def test_the_worked_example_of_cache_warm_up(tmp_path):
    t = Timeline(tmp_path / "t")
    t.writer.marker("param_sync", lane="replica0", param_version=1, ts_ns=10 * S)
    for at, rate in ((9, 0.8), (11, 0.1), (14, 0.5), (18, 0.75)):
        t.writer.counter("prefix_cache_hit_rate", rate, lane="replica0", ts_ns=at * S)
    trace = t.open()
    (found,) = cache_warm_up(trace.counters.collect(), trace.markers.collect())
    assert (found.recovery_s, found.level_before, found.lowest_after) == (8.0, 0.8, 0.1)
    assert cache_warm_up(trace.counters.collect().clear(), trace.markers.collect()) == ()


def test_an_update_that_finds_nothing_cached_has_nothing_to_warm_up(tmp_path):
    t = Timeline(tmp_path / "t")
    t.writer.marker("param_sync", lane="replica0", param_version=1, ts_ns=10 * S)
    for at in (9, 11, 14):
        t.writer.counter("prefix_cache_hit_rate", 0.0, lane="replica0", ts_ns=at * S)
    trace = t.open()
    assert cache_warm_up(trace.counters.collect(), trace.markers.collect()) == ()


def test_a_cache_that_is_not_warm_by_the_next_update_is_counted(tmp_path):
    t = Timeline(tmp_path / "t")
    for at in (10, 20):
        t.writer.marker("param_sync", lane="replica0", param_version=at, ts_ns=at * S)
    for at, rate in ((9, 0.8), (15, 0.3), (25, 0.3)):
        t.writer.counter("prefix_cache_hit_rate", rate, lane="replica0", ts_ns=at * S)
    trace = t.open()
    (found,) = cache_warm_up(trace.counters.collect(), trace.markers.collect())
    assert (found.updates, found.unrecovered, found.recovery_s) == (2, 1, 5.0)


def test_the_trend_is_of_the_run_and_the_means_of_the_window(tmp_path):
    """A steady window leaves out just the syncs beside which the later ones have grown."""
    t = Timeline(tmp_path / "t")
    for version in range(1, 21):
        at, took = 100.0 * version, 1 if version <= 10 else 30
        t.span("trainer", "weight_sync", at, at + took, param_version=version)
    trace = t.open()
    tables = (trace.spans.collect(), trace.markers.collect(), trace.topology)
    (kind,) = syncs(*tables, window=(1150 * S, 2100 * S)).by_backend.values()
    assert (kind.syncs, kind.mean_s["total"]) == (9, 30.0)
    assert (kind.trend.syncs, kind.trend.growth, kind.trend.growing) == (19, 30.0, True)
