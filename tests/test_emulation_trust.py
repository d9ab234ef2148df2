"""When the figures of a run on emulated devices are doubted."""

from __future__ import annotations

import pytest

import rlinsight
from rlinsight.analyzers.emulation import DELAY, LATE, emulation
from rlinsight.collectors.verl.real_time import in_run_time
from rlinsight.trace.run_clock import EmulatedClock, RealClock

S = 1_000_000_000
WINDOW = (0, 100 * S)
SCALE = 0.1  # the window is 10 real seconds


@pytest.fixture
def judged(tmp_path):
    """Return a function: `requests` of 20 s, each delayed, and updates of 5 s, each late."""

    def judge(requests=100, cpu=0.5, late_s=0.0, delay_s=0.1, notes=None):
        with rlinsight.TraceWriter(tmp_path / "t", mode="fully_async") as writer:
            for index in range(requests):
                end_ns = (50 + index % 40) * S
                writer.request(request_id=str(index), lane="replica0", submit_ns=end_ns - 20 * S,
                               end_ns=end_ns, attempt=1)  # fmt: skip
                writer.counter(DELAY, delay_s, lane="replica0", ts_ns=end_ns)
            for index in range(10):
                start_ns = 10 * index * S
                end_ns = start_ns + 5 * S
                writer.span("update_actor", lane="trainer/rank0", start_ns=start_ns, end_ns=end_ns)
                # a first mini-batch that was late counts only if the last one still is
                writer.counter(LATE, 3.0, lane="trainer/rank0", ts_ns=start_ns + 2 * S)
                writer.counter(LATE, late_s, lane="trainer/rank0", ts_ns=end_ns)
            writer.counter("host_cpu_utilization", cpu, lane="n0", ts_ns=S)
        trace = rlinsight.open(tmp_path / "t")
        tables = (trace.requests, trace.counters, trace.spans)
        known = {"emulated": {"time_scale": SCALE}} if notes is None else notes
        return emulation(known, *(table.collect() for table in tables), WINDOW)

    return judge


def test_figures_by_hand(judged):
    found = judged(requests=100, cpu=0.5, late_s=0.1, delay_s=0.2)
    assert found.responses_per_s == pytest.approx(100 / 10)
    assert found.host_cpu == pytest.approx(0.5)
    assert found.update_lateness == pytest.approx(0.1 / 5)
    assert found.request_delay == pytest.approx(0.2 / 20)
    assert found.doubts == ()
    assert "10 responses a real second" in found.sentence()


@pytest.mark.parametrize(
    ("load", "doubt"),
    [
        ({"requests": 400}, "40 emulated responses a real second, more than 35"),
        ({"cpu": 0.9}, "CPU was 90% busy, more than 80%"),
        ({"late_s": 0.5}, "late by 10.0% of an update"),
        ({"delay_s": 2.0}, "delayed by 10.0% of a request"),
    ],
)
def test_each_figure_has_its_limit(judged, load, doubt):
    (only,) = judged(**load).doubts
    assert doubt in only
    assert "emulated.time_scale" in only


def test_a_run_on_real_devices_is_not_judged(judged):
    assert judged(requests=400, notes={}) is None


@pytest.mark.parametrize(
    ("key", "logged", "recorded"),
    [
        ("timing_s/step", 0.8, 8.0),
        ("timing_s/timing_s/param_sync", 0.2, 2.0),
        ("timing_per_token_ms/gen", 0.01, 0.1),
        ("timing_s/agent_loop/slowest/response_length", 512, 512),
        ("fully_async/total_wait_time", 3.0, 30.0),
        ("fully_async/processing_time/tp95", 3.0, 30.0),
        ("fully_async/rollouter/idle_ratio", 0.4, 0.4),
        ("dynamic_resource/train_allocated_time_s", 1.0, 10.0),
        ("separate_async/decision/per_sample_time_seconds", 0.1, 1.0),
        ("perf/time_per_step", 2.0, 20.0),
        ("hybrid/last_add_time", 1.7e9, 1.7e9),
        ("perf/throughput", 1000.0, 100.0),
        ("perf/mfu/actor", 3.0, None),
        ("actor/perf/max_memory_allocated_gb", 1.0, None),
        ("critic/rewards/mean", 0.5, 0.5),
    ],
)
def test_what_verl_logs_is_brought_to_the_run_s_time(key, logged, recorded):
    found = in_run_time(key, logged, EmulatedClock(SCALE, 0, 0))
    assert found == (None if recorded is None else pytest.approx(recorded))
    assert in_run_time(key, logged, RealClock()) == logged
