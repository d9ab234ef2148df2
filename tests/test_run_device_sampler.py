"""The sampler of a run dies, as a driver library may make it: it comes back, and says so."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
from device_stubs import markers
from device_stubs import wait_for as wait

import rlinsight
from rlinsight.runs.device_sampler import DeviceSampler


def wait_for(condition):
    """Wait long enough for a busy machine to start a Python process."""
    return wait(condition, timeout_s=120)


def recording_pids(path):
    return {int(file.stem.split("-")[-1]) for file in (path / "live").glob("process-*.json")}


@pytest.fixture
def sampler(tmp_path, monkeypatch):
    monkeypatch.setenv("RLINSIGHT_NODE", "n0")
    (tmp_path / "trace").mkdir()
    started = DeviceSampler(tmp_path / "trace", "r1", 1.0)
    started.start()
    yield started
    started.stop()


def test_a_sampler_that_dies_is_started_again_and_leaves_a_gap(tmp_path, sampler):
    path = tmp_path / "trace"
    (first,) = wait_for(lambda: recording_pids(path))
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: recording_pids(path) - {first})
    sampler.stop()
    trace = rlinsight.open(path)
    ended = {process.pid: process.ended_ns for process in trace.manifest.processes}
    assert ended[first] is None
    assert all(at is not None for pid, at in ended.items() if pid != first)
    assert not (path / f"sampler-crash-{first}.txt").read_text()  # killed, not crashed
    (gap,) = markers(trace)
    assert gap == ("gap", "n0", "the sampler died (signal 9) and was started again")


def test_a_sampler_whose_trace_is_gone_is_not_started_again(tmp_path, sampler):
    wait_for(lambda: recording_pids(tmp_path / "trace"))
    shutil.rmtree(tmp_path / "trace")
    watch = sampler._watch
    watch.join(10)
    assert not watch.is_alive()
    assert not (tmp_path / "trace").exists()


def test_stopping_is_not_dying(tmp_path, sampler):
    wait_for(lambda: recording_pids(tmp_path / "trace"))
    sampler.stop()
    assert len(recording_pids(tmp_path / "trace")) == 1
    assert markers(rlinsight.open(tmp_path / "trace")) == []
    assert not list((tmp_path / "trace").glob("sampler-crash-*"))


def test_a_crash_in_a_library_says_where(tmp_path, sampler):
    path = tmp_path / "trace"
    (first,) = wait_for(lambda: recording_pids(path))
    os.kill(first, signal.SIGSEGV)
    wait_for(lambda: recording_pids(path) - {first})
    report = (path / f"sampler-crash-{first}.txt").read_text()
    assert "Segmentation fault" in report
    assert "sampler.py" in report
