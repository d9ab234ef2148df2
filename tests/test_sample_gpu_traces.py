"""The recordings made on one and two GPUs: what spans and the driver say must agree."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from test_sample_traces import compare

import rlinsight
from rlinsight.report.markdown import markdown
from rlinsight.trace.validate import validate

SAMPLES = Path(__file__).parent.parent / "sample_traces"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("gpu*/manifest.json"))

#: Parameters of the example model, size `0.6b`.
PARAMETERS = 609_703_680
#: Most of the driver's busy time that may lie in no recorded activity of a device.
OUTSIDE = 0.05
#: Most utilization of a device in the bubbles that make up its idle time.
IDLE = 0.05


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def trace(name):
    return rlinsight.open(SAMPLES / name)


@pytest.fixture(scope="module")
def report(trace):
    return trace.analyze()


def test_the_recordings_are_there():
    assert len(NAMES) >= 5


def test_small_and_valid(name, trace):
    assert sum(path.stat().st_size for path in (SAMPLES / name).iterdir()) < 3_000_000
    assert not validate(trace).findings


def test_no_path_and_no_serial_of_the_recording_machine_is_left(name):
    manifest = (SAMPLES / name / "manifest.json").read_text()
    for place in (f"{Path.home()}/", "/home/", '"/tmp/'):
        assert place not in manifest
    uuids = {part[:12] for part in manifest.split("GPU-")[1:]}
    assert all(uuid.startswith("0000000") for uuid in uuids)


def test_the_ledger_has_no_residual(report):
    window_ns = report.window.end_ns - report.window.start_ns
    spent = report.segments.with_columns(ns=pl.col("end_ns") - pl.col("start_ns"))
    assert set(spent.group_by("device").agg(pl.col("ns").sum())["ns"]) == {window_ns}


def test_every_device_of_the_run_was_sampled_without_a_gap(trace, report):
    devices = {device.id for device in trace.topology.devices}
    assert {entry.device for entry in report.devices.devices} == devices
    assert all(device.kind == "cuda" and device.uuid for device in trace.topology.devices)
    for entry in report.devices.devices:
        assert entry.sampled_s > report.window.duration_s - 1.0
    kinds = set(trace.markers.collect()["kind"])
    assert not kinds & {"gap", "xid", "throttle"}


def test_the_driver_sees_work_only_where_spans_do(report):
    """Spans against NVML: at most 5 % of the driver's busy time lies in no recorded activity.

    A device that worked for a few seconds only is left out: samples are 0.2 s apart.
    """
    for entry in report.devices.devices:
        if entry.busy_s * (entry.busy_utilization or 0) > 5:
            assert entry.outside_share <= OUTSIDE, entry.device


def test_a_device_in_a_long_bubble_idles_by_the_driver_too(report):
    long = [e for e in report.devices.states if e.state.startswith("bubble.") and e.sampled_s > 5]
    for entry in long:
        assert entry.utilization <= IDLE, (entry.device, entry.state)
    idle = [pool for pool in report.pools.values() if pool.idle_ratio > 0.1]
    assert long or not idle


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_spans_kernels_and_the_driver_agree_on_a_profiled_update(mode):
    """Three clocks: the hook's span, the profiler's kernels, the driver's utilization."""
    report = rlinsight.open(SAMPLES / f"gpu_{mode}").analyze()
    (stage,) = report.devices.kernels
    assert (stage.role, stage.step, stage.source) == ("actor_update", 3, "device")
    assert stage.duration_s > 5
    assert stage.agrees is True
    assert abs(stage.difference) < 0.02  # the stated bound is 0.15
    assert sum(kernel.share for kernel in stage.top) < stage.busy
    assert "agree within 15.0 % of the stage" in markdown(report)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
def test_a_run_on_one_gpu_trains_to_its_end_and_keeps_the_gpu_busy(mode):
    trace = rlinsight.open(SAMPLES / f"gpu_{mode}")
    report = trace.analyze()
    assert trace.manifest.exit_code == 0
    assert [row.step for row in report.steps] == [1, 2, 3, 4, 5, 6]
    (device,) = report.devices.devices
    assert device.busy_utilization > 0.3
    assert not report.liveness.alarms


def test_a_weight_sync_moves_the_model_once_over_nvlink():
    """NVML's byte counters against the size of the weights: 4 bytes a parameter, one way."""
    trace = rlinsight.open(SAMPLES / "gpu2_fully_async_s0")
    syncs = trace.spans.filter(
        (pl.col("activity") == "weight_sync") & (pl.col("lane") == "trainer/rank0")
    ).collect()
    received = trace.counters.filter(
        (pl.col("name") == "device_nvlink_rx_bytes_per_s") & (pl.col("lane") == "node0/1")
    ).collect().sort("ts_ns")  # fmt: skip
    amounts = received.with_columns(
        bytes=pl.col("value") * pl.col("ts_ns").diff().fill_null(0) / 1e9
    )
    sizes = [
        amounts.filter(pl.col("ts_ns").is_between(start - 5 * 10**8, end + 5 * 10**8))[
            "bytes"
        ].sum()
        for start, end in syncs.select("start_ns", "end_ns").iter_rows()
    ]
    assert len(sizes) == 5
    for size in sizes[1:]:  # the first one builds the group and warms it up
        assert size == pytest.approx(4 * PARAMETERS, rel=0.05)
    assert amounts["bytes"].sum() == pytest.approx(5 * 4 * PARAMETERS, rel=0.1)


def test_the_update_without_flash_attn_is_found_host_bound():
    report = rlinsight.open(SAMPLES / "gpu2_fully_async_s0").analyze()
    (update,) = (e for e in report.devices.states if e.state == "train.update_actor")
    assert update.finding == "host_bound"
    assert 0.2 < update.utilization < 0.35
    assert 110 < update.power_w < 300
    text = markdown(report)
    assert "host-bound: busy by span, idle by device" in text
    assert "of what the driver saw, in no record: node0/0 2.8 %" in text


def test_a_hybrid_engine_shows_in_the_memory_of_its_device():
    report = rlinsight.open(SAMPLES / "gpu_colocate_async").analyze()
    (share,) = report.devices.sharing
    # 30 % of the GPU's memory is the engine's, and it slept while nothing generated.
    assert 35e9 < share.high_bytes - share.low_bytes < 50e9
    assert 0 < share.engine_share - share.generate_share < 0.1


def test_the_golden_report(name, report):
    golden = json.loads((SAMPLES / name / "golden.json").read_text())
    differences = list(compare(golden, json.loads(json.dumps(report.to_dict()))))
    assert not differences, "; run `make golden` after a deliberate change"
