"""Stand-ins for what a GPU or NPU host has: the driver's library, and the tool on PATH.

The libraries are compiled, so that the samplers and the bindings they use run unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import rlinsight
from rlinsight.collectors.devices.board import Board

DATA = Path(__file__).parent / "data"
FACTS = json.loads((DATA / "nvml" / "h200_facts.json").read_text())


def compiled(source: Path, target: Path, **macros: object) -> Path:
    """Compile a shared library; a test on a machine without compiler is skipped."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the stand-in of the driver library")
    defines = [f"-D{name}={value}" for name, value in macros.items()]
    command = [compiler, "-shared", "-fPIC", "-w", *defines, str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def nvml_library(folder: Path, **macros: object) -> Path:
    """Compile the library that answers as the recorded H200; return its folder."""
    recorded = {
        "DRIVER": json.dumps(FACTS["driver"][0]),
        "NAME": json.dumps(FACTS["nvmlDeviceGetName"][0]),
        "MEMORY_TOTAL": f"{FACTS['nvmlDeviceGetMemoryInfo'][0]['total']}ull",
        "MEMORY_FREE": f"{FACTS['nvmlDeviceGetMemoryInfo'][0]['free']}ull",
        "POWER_MW": FACTS["nvmlDeviceGetPowerUsage"][0],
        "ENERGY_MJ": FACTS["nvmlDeviceGetTotalEnergyConsumption"][0],
        "POWER_LIMIT_MW": FACTS["nvmlDeviceGetEnforcedPowerLimit"][0],
        "TEMPERATURE_C": FACTS["temp_gpu"][0],
        "CLOCK_SM": FACTS["clock_SM"][0],
        "CLOCK_MEM": FACTS["clock_MEM"][0],
        "RECORDED_THROTTLE": FACTS["nvmlDeviceGetCurrentClocksThrottleReasons"][0],
        "EVENT_TYPES": FACTS["nvmlDeviceGetSupportedEventTypes"][0],
        "PCIE_RX": f"{FACTS['fields_ok']['NVML_FI_DEV_PCIE_COUNT_RX_BYTES']}ull",
        "PCIE_TX": f"{FACTS['fields_ok']['NVML_FI_DEV_PCIE_COUNT_TX_BYTES']}ull",
    }
    folder.mkdir(exist_ok=True)
    compiled(DATA / "nvml" / "stub.c", folder / "libnvidia-ml.so.1", **{**recorded, **macros})
    return folder


def npu_smi(folder: Path, **outputs: Path | str) -> Path:
    """Put an executable `npu-smi` into `folder`; return the folder, for PATH.

    `info`, `mapping` and `usages` are what it prints for `info`, `info -m` and
    `info -t usages`: the file, read anew at every call, or the text itself.
    """
    folder.mkdir(exist_ok=True)
    paths = {}
    for name in ("info", "mapping", "usages"):
        given = outputs.get(name, "")
        paths[name] = given if isinstance(given, Path) else folder / f"{name}.txt"
        if isinstance(given, str):
            paths[name].write_text(given)
    script = folder / "npu-smi"
    script.write_text(
        "#!/bin/sh\n"
        f'case "$*" in\n"info") cat "{paths["info"]}";;\n"info -m") cat "{paths["mapping"]}";;\n'
        f'"info -t usages"*) cat "{paths["usages"]}";;\n*) exit 1;;\nesac\n'
    )
    script.chmod(0o755)
    return folder


def sampler(trace: Path, *options: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start the sampler process as the launcher does, with another environment."""
    command = [sys.executable, "-m", "rlinsight.collectors.devices", str(trace), *options]
    return subprocess.Popen(command, env={**os.environ, "RLINSIGHT_NODE": "n0", **environment})


def wait_for(condition, timeout_s: float = 120.0):
    """Return the first true value of `condition`; fail after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return value


class Recording:
    """A trace of node `n0` that one source is sampled into, in this process."""

    def __init__(self, path: Path) -> None:
        self.writer = rlinsight.TraceWriter(path, node="n0")

    def board(self, source: str = "test") -> Board:
        return Board(self.writer, source)

    def trace(self) -> rlinsight.Trace:
        self.writer.flush()
        return rlinsight.open(self.writer.path)

    def counters(self, lane: str) -> dict[str, list[float]]:
        """Return the values of each counter of a lane, oldest first."""
        return counters(self.trace(), lane)

    def markers(self) -> list[tuple[str, str, str | None]]:
        """Return (kind, lane, reason) of each marker, oldest first."""
        return markers(self.trace())

    @property
    def notes(self) -> dict:
        return self.writer.report.notes


def counters(trace: rlinsight.Trace, lane: str) -> dict[str, list[float]]:
    rows = trace.counters.filter(pl.col("lane") == lane).sort("ts_ns").collect()
    return {name: part["value"].to_list() for (name,), part in rows.group_by("name")}


def markers(trace: rlinsight.Trace) -> list[tuple[str, str, str | None]]:
    return trace.markers.sort("ts_ns").select("kind", "lane", "reason").collect().rows()
