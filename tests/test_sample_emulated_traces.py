"""The committed recordings of emulated devices: the same 64 devices, shared out in two ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_sample_traces import compare

import rlinsight
from rlinsight.trace.validate import validate

SAMPLES = Path(__file__).parent.parent / "sample_traces"
#: Folder -> trainer and rollout devices.
POOLS = {"emulated_16_48": (16, 48), "emulated_32_32": (32, 32)}


@pytest.fixture(scope="module")
def reports():
    return {name: rlinsight.open(SAMPLES / name).analyze() for name in POOLS}


@pytest.mark.parametrize("name", POOLS)
def test_small_valid_and_of_emulated_devices(name):
    trace = rlinsight.open(SAMPLES / name)
    assert sum(path.stat().st_size for path in (SAMPLES / name).iterdir()) < 1_000_000
    assert not validate(trace).findings
    devices = trace.topology.devices
    assert {device.kind for device in devices} == {"emulated"}
    pools = [device.pool for device in devices]
    assert (pools.count("trainer"), pools.count("rollout")) == POOLS[name]
    assert trace.manifest.notes["emulated"]["training"]["device_s_per_token"] == 0.0036


@pytest.mark.parametrize("name", POOLS)
def test_the_golden_report(name, reports):
    golden = json.loads((SAMPLES / name / "golden.json").read_text())
    found = json.loads(json.dumps(reports[name].to_dict()))
    differences = list(compare(golden, found))
    assert not differences, "; run `make golden` after a deliberate change"


@pytest.mark.parametrize("name", POOLS)
def test_no_path_of_the_recording_machine_is_left(name):
    manifest = (SAMPLES / name / "manifest.json").read_text()
    for place in (str(SAMPLES.parent), f"{Path.home()}/", "/home/", "/tmp/"):
        assert place not in manifest


def test_with_too_many_rollouters_the_trainer_is_the_bottleneck(reports):
    many, even = reports["emulated_16_48"], reports["emulated_32_32"]
    assert many.pools["trainer"].idle_ratio < 0.1
    assert many.pools["rollouter"].idle_ratio > even.pools["rollouter"].idle_ratio
    assert even.pools["trainer"].idle_ratio > many.pools["trainer"].idle_ratio


def test_moving_16_devices_to_the_trainer_trains_more(reports):
    rates = {
        name: found.throughput.tokens_per_s_per_device.value for name, found in reports.items()
    }
    assert rates["emulated_32_32"] / rates["emulated_16_48"] == pytest.approx(1.38, abs=0.01)


def test_devices_keep_to_the_cost_model(reports):
    for found in reports.values():
        assert found.trust.emulation.update_lateness < 0.05
        assert found.trust.unattributed_ratio < 0.03
