"""NVIDIA: the real binding and the real sampler process on a library that answers as recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from device_stubs import (
    DATA,
    FACTS,
    Recording,
    counters,
    markers,
    nvml_library,
    sampler,
    wait_for,
)

import rlinsight
from rlinsight.collectors.devices.nvml import Nvml
from rlinsight.collectors.devices.nvml_devices import Gpu, visible_names
from rlinsight.collectors.devices.nvml_queries import QUERIES, SLOW_QUERIES, TOTALS

pytest.importorskip("pynvml")

UUID = "GPU-00000000-0000-0000-0000-00000000000"
MIG = "MIG-00000000-0000-0000-0000-00000000000"
MEMORY = FACTS["nvmlDeviceGetMemoryInfo"][0]


def opened(path):
    """The trace once it holds rows of a few samples of the host's slower pace."""
    live = path / "live"
    wait_for(lambda: list(live.glob("counters-*.arrows")))
    return rlinsight.open(path)


def sampled(tmp_path, library, *, until=None, **environment):
    """Sample until the trace satisfies `until` (default: it has rows), and return the trace."""
    path = tmp_path / "trace"
    process = sampler(
        path, "--interval=0.05", LD_LIBRARY_PATH=str(library), PATH="/bin:/usr/bin", **environment
    )
    try:
        wait_for(lambda: (until or bool)(opened(path)))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
    return rlinsight.open(path)


def notes(trace, key):
    return trace.manifest.notes[key]


@pytest.fixture(scope="module")
def h200(tmp_path_factory):
    """One recording of a node with one H200 that answers everything as recorded."""
    folder = tmp_path_factory.mktemp("h200")
    return sampled(folder, nvml_library(folder / "lib"))


def test_an_h200_is_sampled_as_it_was_recorded(h200):
    rows = counters(h200, "n0/0")
    last = {name: values[-1] for name, values in rows.items()}
    assert last.pop("device_pcie_rx_bytes_per_s") > 0
    assert last.pop("device_pcie_tx_bytes_per_s") > 0
    assert last.pop("device_memory_bandwidth_utilization") == 0.25
    assert last == {
        "device_utilization": 0.63,
        "device_memory_utilization": 0.12,
        "device_memory_used_bytes": MEMORY["total"] - MEMORY["free"],
        "device_memory_total_bytes": MEMORY["total"],
        "device_power_w": 79.119,
        "device_power_limit_w": 700.0,
        "device_energy_j": 2424.299,
        "device_temperature_c": 39.0,
        "device_core_clock_mhz": 345.0,
        "device_memory_clock_mhz": 3201.0,
        "device_throttle_reasons": 1.0,
        "device_ecc_corrected": 0.0,
        "device_ecc_uncorrected": 0.0,
        "device_sm_utilization": 0.05,
        "device_sm_occupancy": 0.075,
    }
    assert markers(h200) == []


def test_the_first_bandwidth_reading_is_nan_and_not_written(h200):
    rows = counters(h200, "n0/0")
    assert len(rows["device_memory_bandwidth_utilization"]) == len(rows["device_sm_occupancy"]) - 1


def test_what_a_device_never_answers_is_named_once(h200):
    assert notes(h200, "unsupported_queries.nvml.n0") == {
        "n0/0": {
            "nvlink_rx": "Not Supported",
            "nvlink_tx": "Not Supported",
            "gpm.ANY_TENSOR_UTIL": "NVML code 2",
        }
    }
    facts = notes(h200, "sampled_devices.n0")["n0/0"]
    assert (facts["uuid"], facts["name"], facts["kind"]) == (f"{UUID}1", "NVIDIA H200", "cuda")
    assert notes(h200, "nvidia_driver.n0") == FACTS["driver"][0]


def test_a_lost_query_is_a_gap_and_the_other_figures_go_on(tmp_path):
    failing = tmp_path / "failing"

    def until(trace):
        """Three acts: it answers, it fails, it answers again."""
        kinds = [kind for kind, _, _ in markers(trace)]
        if "gap_end" in kinds:
            return True
        if "gap" in kinds:
            failing.unlink(missing_ok=True)
        elif not failing.exists() and "device_power_w" in counters(trace, "n0/0"):
            draft = failing.with_suffix(".draft")
            draft.write_text("nvmlDeviceGetPowerUsage")
            draft.rename(failing)
        return False

    library = nvml_library(tmp_path / "lib")
    trace = sampled(tmp_path, library, until=until, NVML_STUB_FAIL=str(failing))
    power = [row for row in markers(trace) if row[1] == "n0/0"]
    assert power == [("gap", "n0/0", "GPU is lost"), ("gap_end", "n0/0", None)]
    rows = counters(trace, "n0/0")
    missing = len(rows["device_temperature_c"]) - len(rows["device_power_w"])
    (attrs,) = trace.markers.filter(kind="gap_end").collect()["attrs"].to_list()
    assert {"key": "missed", "value": str(missing)} in attrs
    assert set(rows["device_power_w"]) == {79.119}  # not one 0 among them


def test_errors_and_slowdowns_are_events(tmp_path):
    library = nvml_library(tmp_path / "lib", XID=79, THROTTLE=0x40 | 0x04)
    trace = sampled(tmp_path, library, until=lambda trace: len(markers(trace)) >= 2)
    assert sorted(markers(trace)) == [
        ("throttle", "n0/0", "HwThermalSlowdown"),
        ("xid", "n0/0", "79"),
    ]
    assert counters(trace, "n0/0")["device_throttle_reasons"][-1] == 0x44


def test_mig_instances_are_devices_of_their_own(tmp_path):
    library = nvml_library(tmp_path / "lib", MIG_INSTANCES=2)
    trace = sampled(tmp_path, library)
    whole, part = counters(trace, "n0/0"), counters(trace, f"n0/{MIG}2")
    assert "device_power_w" in whole
    assert "device_utilization" not in whole  # refused while MIG is on
    assert part.keys() == {
        "device_memory_used_bytes",
        "device_memory_total_bytes",
        "device_sm_utilization",
        "device_sm_occupancy",
        "device_memory_bandwidth_utilization",
    }
    assert notes(trace, "sampled_devices.n0")[f"n0/{MIG}2"]["mig_instance"] == 8


def test_only_the_visible_devices_are_sampled_under_the_runs_own_names(tmp_path):
    library = nvml_library(tmp_path / "lib", GPUS=4)
    trace = sampled(tmp_path, library, CUDA_VISIBLE_DEVICES=f"{UUID}3,0")
    sampled_devices = notes(trace, "sampled_devices.n0")
    assert {lane: facts["index"] for lane, facts in sampled_devices.items()} == {
        f"n0/{UUID}3": 2,
        "n0/0": 0,
    }


def test_memory_of_a_process_of_the_run_and_of_nobody_else(tmp_path):
    environment = {**os.environ, "RLINSIGHT_RUN_ID": "r7"}
    program = "import time; time.sleep(60)"
    worker = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        path = tmp_path / "trace"
        process = sampler(
            path,
            "--interval=0.05",
            "--run-id=r7",
            LD_LIBRARY_PATH=str(nvml_library(tmp_path / "lib")),
            NVML_STUB_PID=str(worker.pid),
        )
        lane = f"n0/pid-{worker.pid}"
        wait_for(lambda: "process_device_memory_bytes" in counters(opened(path), lane))
        process.terminate()
        process.wait(20)
    finally:
        worker.kill()
        worker.wait()
    rows = counters(rlinsight.open(path), lane)
    assert set(rows["process_device_memory_bytes"]) == {45267 << 20}
    assert rows["process_memory_rss_bytes"][0] > 0
    assert counters(rlinsight.open(path), "n0/pid-1") == {}


def test_memory_of_a_process_on_an_instance_counts_once(tmp_path):
    """NVML names it on its MIG instance, and once more on the GPU that is divided."""
    gpus = [
        Gpu("whole0", "n0/0", "GPU-0", 0),
        Gpu("part", "n0/MIG-0", "MIG-0", 0, "whole0", 7),
        Gpu("whole1", "n0/1", "GPU-1", 1),
    ]
    running = {"whole0": [(7, 100)], "part": [(7, 100)], "whole1": [(7, 5), (8, 50)]}
    never = ("NotSupported", "FunctionNotFound", "NoPermission")
    library = SimpleNamespace(
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in running[handle]
        ],
        **{f"NVMLError_{name}": type(name, (Exception,), {}) for name in never},
    )
    source = object.__new__(Nvml)
    source._gpus, source._nvml = gpus, library
    source._processes = SimpleNamespace(pids={7}, lane=lambda pid: f"n0/pid-{pid}")
    recording = Recording(tmp_path / "trace")
    source._process_memory(recording.board("nvml"))
    assert recording.counters("n0/pid-7") == {"process_device_memory_bytes": [105]}
    assert recording.counters("n0/pid-8") == {}


def test_the_runs_device_gets_its_uuid(tmp_path):
    """A worker knows its device's number and pool, the sampler its UUID."""
    path = tmp_path / "trace"
    with rlinsight.TraceWriter(path, node="n0") as worker:
        worker.declare_device(rlinsight.Device("n0/1", "n0", 1, "cuda", "rollout"))
    trace = sampled(tmp_path, nvml_library(tmp_path / "lib", GPUS=2))
    assert trace.topology.devices == (
        rlinsight.Device("n0/1", "n0", 1, "cuda", "rollout", f"{UUID}2"),
    )


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, {"GPU-aa11": "0", "GPU-bb22": "1"}),
        ("", {"GPU-aa11": "0", "GPU-bb22": "1"}),  # Ray's mark for a worker without GPU
        ("1", {"GPU-bb22": "1"}),
        ("1,0", {"GPU-bb22": "1", "GPU-aa11": "0"}),
        ("GPU-b", {"GPU-bb22": "GPU-b"}),
        ("MIG-cc", {"MIG-cc33": "MIG-cc"}),
        ("0,7,1", {"GPU-aa11": "0"}),  # CUDA too stops at an entry it does not know
        ("GPU-", {}),  # names two
        ("-1", {}),
    ],
)
def test_devices_have_the_names_that_cuda_visible_devices_gives_them(visible, names):
    assert visible_names(visible, ["GPU-aa11", "GPU-bb22"], ["MIG-cc33"]) == names


def test_a_machine_without_driver_says_so(tmp_path):
    trace = sampled(tmp_path, tmp_path)
    hook = trace.manifest.hooks["devices.nvml"]
    assert "Library Not Found" in json.dumps(hook, default=str)


#: Our queries, and the library's function that each asks.
FUNCTIONS = {
    "memory": "nvmlDeviceGetMemoryInfo",
    "utilization": "nvmlDeviceGetUtilizationRates",
    "power": "nvmlDeviceGetPowerUsage",
    "energy": "nvmlDeviceGetTotalEnergyConsumption",
    "temperature": "temp_gpu",
    "core_clock": "clock_SM",
    "memory_clock": "clock_MEM",
    "throttle_reasons": "nvmlDeviceGetCurrentClocksEventReasons",
    "power_limit": "nvmlDeviceGetEnforcedPowerLimit",
    "ecc_corrected": "ecc_total_00",
    "ecc_uncorrected": "ecc_total_10",
}


def test_linked_h200s_answer_every_query():
    """As recorded on one of two H200s with NVLink while it held two processes of a run."""
    facts = json.loads((DATA / "nvml" / "h200_linked_facts.json").read_text())
    assert {query.name for query in (*QUERIES, *SLOW_QUERIES)} == FUNCTIONS.keys()
    for function in FUNCTIONS.values():
        answer, _cost_us = facts[function]
        assert not str(answer).startswith("ERR"), function
    assert {total.field for total in TOTALS} <= facts["fields_ok"].keys()
    processes, _ = facts["nvmlDeviceGetComputeRunningProcesses"]
    assert len(processes) == 2
