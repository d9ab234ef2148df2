"""The host source on the machine the tests run on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from device_stubs import Recording, wait_for

from rlinsight.collectors.devices.host import open_host
from rlinsight.collectors.devices.processes import RunProcesses

#: The whole machine is searched for it, and tests run beside each other.
MINE = f"mine-{os.getpid()}"


def marked(run_id, program):
    environment = {**os.environ, "RLINSIGHT_RUN_ID": run_id}
    return subprocess.Popen([sys.executable, "-c", program], env=environment)


@pytest.fixture
def worker():
    process = marked(MINE, "import time; time.sleep(60)")
    yield process
    process.kill()
    process.wait()


def test_memory_disk_and_shared_memory_are_the_machines(tmp_path):
    recording = Recording(tmp_path)
    open_host("n0", tmp_path, RunProcesses(None, "n0")).sample(recording.board("host"))
    rows = recording.counters("n0")
    total = psutil.virtual_memory().total
    assert rows["host_memory_total_bytes"] == [total]
    used, available = rows["host_memory_used_bytes"][0], rows["host_memory_available_bytes"][0]
    assert used + available == total
    if Path("/dev/shm").is_dir():
        assert rows["host_shm_total_bytes"] == [psutil.disk_usage("/dev/shm").total]
    assert 0 < rows["host_disk_free_bytes"][0] <= psutil.disk_usage(str(tmp_path)).total
    assert 0 <= rows["host_cpu_utilization"][0] <= 1


def test_rates_come_with_the_second_sample(tmp_path):
    recording = Recording(tmp_path)
    source, board = open_host("n0", tmp_path, RunProcesses(None, "n0")), recording.board("host")
    source.sample(board)
    first = recording.counters("n0")
    source.sample(board)
    rates = {name for name in recording.counters("n0") if name.endswith("_per_s")}
    assert not any(name.endswith("_per_s") for name in first)
    has_network = any(name != "lo" for name in psutil.net_io_counters(pernic=True))
    assert ("host_network_rx_bytes_per_s" in rates) == has_network


def test_processes_of_the_run_only(tmp_path, worker):
    processes = RunProcesses(MINE, "n0")
    wait_for(lambda: worker.pid in processes.refresh())
    recording = Recording(tmp_path)
    open_host("n0", tmp_path, processes).sample(recording.board("host"))
    rss = recording.counters(processes.lane(worker.pid))["process_memory_rss_bytes"]
    assert rss[0] > 1 << 20
    assert os.getpid() not in processes.pids
    assert recording.notes["sampled_processes.n0"][worker.pid].startswith("python")


def test_nothing_is_kept_of_a_process_that_ended(tmp_path):
    """A reward that runs code starts a process for every answer."""
    processes = RunProcesses(MINE, "n0")
    source = open_host("n0", tmp_path, processes)
    board = Recording(tmp_path).board("host")
    source.sample(board)
    before = set(source._rates)
    for _ in range(3):
        answer = marked(MINE, "import time; time.sleep(60)")
        wait_for(lambda answer=answer: answer.pid in processes.refresh())
        source._each_process(board, 1)
        assert f"n0/pid-{answer.pid}" in source._rates
        answer.kill()
        answer.wait()
    source._each_process(board, 2)
    assert set(source._rates) == before
    assert source._known == {}


def test_a_child_that_lost_the_mark_is_of_the_run_too():
    program = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'input()'], env={}, stdin=sys.stdin)"
    )
    environment = {**os.environ, "RLINSIGHT_RUN_ID": MINE}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE
    )
    try:
        processes = RunProcesses(MINE, "n0")
        found = wait_for(lambda: len(pids := processes.refresh()) == 2 and pids)
        assert parent.pid in found
        (child,) = found - {parent.pid}
        assert psutil.Process(child).ppid() == parent.pid
    finally:
        parent.communicate()
    wait_for(lambda: not processes.refresh())


def test_without_a_run_no_process_is_followed(worker):
    assert RunProcesses(None, "n0").refresh() == frozenset()
    assert worker.pid not in RunProcesses("another", "n0").refresh()
