"""Device samples joined with the ledger: timelines in which the answer is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timelines import S, Timeline

import rlinsight
from rlinsight.analyzers.devices.activity import finding

GB = 10**9


def two_gpus(**changes):
    """A trainer rank on n0/0 with a hybrid replica beside it, a standalone replica on n0/1."""
    return rlinsight.Topology(
        devices=[
            rlinsight.Device("n0/0", node="n0", index=0, kind="cuda", pool="trainer"),
            rlinsight.Device("n0/1", node="n0", index=1, kind="cuda", pool="rollout"),
        ],
        lanes=[
            rlinsight.Lane("trainer", role="trainer", devices=["n0/0"]),
            rlinsight.Lane("trainer/rank0", role="trainer_rank", devices=["n0/0"], rank=0),
            rlinsight.Lane("replica0", role="replica", devices=["n0/1"], engine_kind="standalone"),
            rlinsight.Lane("hybrid0", role="replica", devices=["n0/0"], engine_kind="hybrid"),
        ],
        **changes,
    )


@pytest.fixture
def t(tmp_path):
    """update_actor 0-8 and a wait 8-10 on device 0, generation 0-10 on device 1."""
    t = Timeline(tmp_path / "t", two_gpus())
    t.step(1, 0, 10)
    t.span("trainer/rank0", "update_actor", 0, 8)
    t.span("trainer", "wait_samples", 8, 10)
    t.gen(0, 10)
    return t


def sample(t, device, values, *, every=1.0, start=0.0):
    """Write counters of `device`: name -> values, one each `every` seconds from `start`."""
    for name, series in values.items():
        for i, value in enumerate(series):
            if value is not None:
                ts_ns = round((start + i * every) * S)
                t.writer.counter(f"device_{name}", value, lane=device, ts_ns=ts_ns)


def states(report):
    return {(entry.device, entry.state): entry for entry in report.devices.states}


def test_a_sample_stands_for_the_time_before_it_and_is_cut_where_states_change(t):
    # The sample at 9 s covers 8-9 (the wait), that at 8.5 would cover 7.5-8.5; every 1.5 s here.
    sample(t, "n0/0", {"utilization": [0, 0.2, 0.2, 0.2, 0.2, 0.2, 1.0]}, every=1.5)
    found = states(t.open().analyze())
    update, wait = found["n0/0", "train.update_actor"], found["n0/0", "bubble.wait_samples"]
    # 0-7.5 at 0.2, and of 7.5-9 at 1.0 the first half second.
    assert (update.sampled_s, update.utilization) == (8.0, pytest.approx((7.5 * 0.2 + 0.5) / 8))
    assert (wait.sampled_s, wait.utilization) == (1.0, 1.0)


def test_busy_by_span_and_idle_by_device_is_host_bound(t):
    sample(t, "n0/0", {"utilization": [0.13] * 11, "power_w": [130.0] * 11})
    sample(t, "n0/1", {"utilization": [0.9] * 11})
    found = states(t.open().analyze())
    update = found["n0/0", "train.update_actor"]
    assert (update.finding, update.idle_s) == ("host_bound", pytest.approx(6.96))
    assert found["n0/1", "generate"].finding is None
    # A device that waits has nothing to be judged by.
    assert found["n0/0", "bubble.wait_samples"].finding is None


@pytest.mark.parametrize(
    ("utilization", "power_share", "expected"),
    [
        (0.3, 0.9, "host_bound"),
        (0.7, 0.1, "launch_bound"),
        (1.0, 0.1, "spinning"),
        (1.0, 0.6, None),
        (1.0, None, None),
        (None, 0.1, None),
    ],
)
def test_utilization_is_read_with_power(utilization, power_share, expected):
    assert finding(utilization, power_share, "train.update_actor") == expected
    assert finding(utilization, power_share, "bubble.drain") is None


def test_full_utilization_at_low_power_is_spinning(t):
    # Idle at 100 W for the last second; 150 of 100 to 700 W while "busy".
    sample(t, "n0/0", {"utilization": [1.0] * 11, "power_w": [*[150.0] * 10, 100.0]})
    t.writer.counter("device_power_limit_w", 700.0, lane="n0/0", ts_ns=0)
    update = states(t.open().analyze())["n0/0", "train.update_actor"]
    assert update.finding == "spinning"
    assert update.power_share == pytest.approx(50 / 600)
    assert update.energy_j == pytest.approx(8 * 150)


def test_a_gap_in_the_samples_is_left_out(t):
    ten = [0.5] * 3 + [None] * 5 + [0.5] * 3  # nothing at 3 to 7 s
    sample(t, "n0/0", {"utilization": ten})
    found = states(t.open().analyze())
    sampled = sum(e.sampled_s for (device, _), e in found.items() if device == "n0/0")
    assert sampled == pytest.approx(4.0)  # 0-2 and 8-10


def test_memory_headroom_and_token_budget(t):
    used = [20 * GB, *[60 * GB] * 7, 20 * GB, 20 * GB, 20 * GB]
    sample(t, "n0/0", {"memory_used_bytes": used, "memory_total_bytes": [100 * GB] * 11})
    for name, value in (("peak", 50 * GB), ("allocated", 20 * GB)):
        t.writer.counter(f"device_memory_{name}_bytes", value, lane="trainer/rank0", ts_ns=8 * S)
    report = t.open().analyze().devices
    peak = next(e for e in report.memory if e.state == "train.update_actor")
    assert (peak.peak_bytes, peak.headroom_bytes, peak.headroom) == (60 * GB, 40 * GB, 0.4)
    # 90 - 60 GB are left for what grows from 20 to 50 GB with the tokens.
    assert report.ranks.ranks[0].budget_factor == pytest.approx(2.0)
    assert report.ranks.imbalance is None


def test_a_hybrid_device_shows_its_shares_in_its_memory_steps(t):
    used = [3 * GB, *[3 * GB] * 4, *[45 * GB] * 6]  # the engine is awake from 4 to 10 s
    sample(t, "n0/0", {"memory_used_bytes": used, "memory_total_bytes": [140 * GB] * 11})
    flat = {"memory_used_bytes": [45 * GB] * 11, "memory_total_bytes": [140 * GB] * 11}
    sample(t, "n0/1", flat)
    (share,) = t.open().analyze().devices.sharing
    assert (share.device, share.switches) == ("n0/0", 1)
    assert (share.engine_share, share.trainer_share) == (
        pytest.approx(6 / 10, abs=0.01),
        pytest.approx(4 / 10, abs=0.01),
    )


def test_a_throttled_device_and_a_slow_one_are_named(t):
    for device, clock in (("n0/0", 1980.0), ("n0/1", 1500.0)):
        sample(t, device, {"core_clock_mhz": [clock] * 11})
    t.writer.marker("throttle", lane="n0/0", reason="HwThermalSlowdown", ts_ns=2 * S)
    t.writer.marker("throttle_end", lane="n0/0", reason="HwThermalSlowdown", ts_ns=5 * S)
    t.writer.marker("xid", lane="n0/0", reason="79", ts_ns=6 * S)
    troubles = {entry.device: entry for entry in t.open().analyze().devices.troubles}
    assert troubles["n0/0"].throttled_s == 3.0
    assert troubles["n0/0"].reasons == ("HwThermalSlowdown",)
    assert troubles["n0/0"].errors == ("xid 79",)
    assert troubles["n0/1"].slow
    assert troubles["n0/1"].clock_ratio == pytest.approx(1500 / 1740)


def test_healthy_devices_are_not_listed(t):
    for device in ("n0/0", "n0/1"):
        sample(t, device, {"core_clock_mhz": [1980.0] * 11})
    assert t.open().analyze().devices.troubles == ()


def window(t, *, busy, start=1.0, end=7.0, **columns):
    attrs = {
        "role": "actor_update", "step": 1, "source": "device", "end_ns": round(end * S),
        "busy_ns": round(busy * (end - start) * S), "communication_ns": 2 * S,
        "exposed_communication_ns": S, "longest_gap_ns": S, "launches": 600, **columns,
    }  # fmt: skip
    t.writer.marker("kernel_window", lane="trainer/rank0", ts_ns=round(start * S), attrs=attrs)
    for name, ns in (("gemm", 2 * S), ("ncclDevKernel", S)):
        t.writer.marker(
            "kernel_top",
            lane="trainer/rank0",
            ts_ns=round(start * S),
            attrs={"role": "actor_update", "name": name, "count": 10, "total_ns": ns},
        )


@pytest.mark.parametrize(("utilization", "agrees"), [(0.6, True), (0.9, False)])
def test_spans_kernels_and_the_driver_agree_within_bounds(t, utilization, agrees):
    sample(t, "n0/0", {"utilization": [utilization] * 11})
    window(t, busy=0.55)
    (stage,) = t.open().analyze().devices.kernels
    assert stage.agrees is agrees
    assert stage.difference == pytest.approx(0.55 - utilization)
    assert (stage.span_s, stage.duration_s) == (8.0, 6.0)
    assert stage.communication == pytest.approx(2 / 6)
    assert stage.exposed_communication == pytest.approx(1 / 6)
    assert stage.launches_per_s == 100
    assert [kernel.name for kernel in stage.top] == ["gemm", "ncclDevKernel"]


def test_a_stage_that_leaves_its_span_does_not_agree(t):
    sample(t, "n0/0", {"utilization": [0.5] * 11})
    window(t, busy=0.5, end=9.5)
    assert t.open().analyze().devices.kernels[0].agrees is False


def test_without_samples_of_the_driver_nothing_is_compared(t):
    window(t, busy=0.5)
    report = t.open().analyze()
    (stage,) = report.devices.kernels
    assert (stage.agrees, stage.driver_utilization) == (None, None)
    assert report.devices.states == ()


def test_without_any_device_figure_there_is_no_such_part(t):
    assert t.open().analyze().devices is None


def test_every_renderer_shows_the_devices(t):
    from rlinsight.report.markdown import markdown

    sample(t, "n0/0", {"utilization": [0.13] * 11, "power_w": [130.0] * 11})
    used = {"memory_used_bytes": [5 * GB] * 11, "memory_total_bytes": [140 * GB] * 11}
    sample(t, "n0/0", used)
    window(t, busy=0.2)
    report = t.open().analyze()
    json.dumps(report.to_dict(), allow_nan=False)
    text = markdown(report)
    assert "host-bound: busy by span, idle by device" in text
    assert "kernels 20.0 %, driver 13.0 %: agree within 15.0 % of the stage" in text
    assert "ncclDevKernel" in text


def test_the_window_limits_what_is_joined(t):
    sample(t, "n0/0", {"utilization": [0.0] * 5 + [1.0] * 6})
    path = t.open().path
    report = rlinsight.open(Path(path)).analyze(window=(5 * S, 10 * S))
    assert states(report)["n0/0", "train.update_actor"].utilization == 1.0
