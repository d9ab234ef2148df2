"""kill -9 of each kind of process of a real run, at a random moment.

What was recorded more than a second before is readable, and the report names the lane.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import pytest
from conftest import CLI, processes_of, profile, wait_until

import rlinsight
from rlinsight.errors import TraceError

#: Lanes whose process is killed, one run each; the first is part of every build.
VICTIMS = (
    "replica1",
    *(
        pytest.param(lane, marks=pytest.mark.long)
        for lane in (
            "trainer/rank0", "trainer", "rollouter", "message_queue", "agent_loop/0", "reward/0",
        )
    ),
)  # fmt: skip


def rows_of(folder: Path) -> pl.DataFrame:
    """Return (lane, activity, start_ns) of all spans recorded so far; none before the first."""
    try:
        spans = rlinsight.open(folder).spans
    except TraceError:
        return pl.DataFrame(schema={"lane": pl.String, "activity": pl.String, "start_ns": pl.Int64})
    return spans.select("lane", "activity", "start_ns").collect()


def is_training(folder: Path) -> bool:
    spans = rows_of(folder)
    return len(spans.filter(pl.col("activity") == "update_actor")) >= 2


def process_of(folder: Path, lane: str) -> dict:
    """Return the process file of the process that declared `lane`."""
    for path in (folder / "live").glob("process-*.json"):
        content = json.loads(path.read_text())
        if any(found["id"] == lane for found in content["topology"]["lanes"]) and (
            found_pid(content, lane)
        ):
            return content
    raise AssertionError(f"no process declares {lane}")


def found_pid(content: dict, lane: str) -> bool:
    lanes = {found["id"]: found for found in content["topology"]["lanes"]}
    return lanes[lane].get("pid") == content["pid"]


def ended(run: subprocess.Popen) -> str:
    """Return what a run printed; verl waits for a dead engine forever, so a user interrupts it."""
    try:
        return run.communicate(timeout=30)[0]
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
        return run.communicate(timeout=120)[0]


@contextmanager
def training(folder: Path) -> Iterator[subprocess.Popen]:
    """Start a run that would take long, wait until it trains, and end it in any case."""
    run = subprocess.Popen(
        [CLI, "run", "--profile", str(profile("fully_async", folder, steps=200))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(lambda: is_training(folder / "trace") or run.poll() is not None, 800, "training")
        assert run.poll() is None, run.communicate()[0][-4000:]
        time.sleep(random.Random(os.urandom(8)).uniform(0, 3))
        yield run
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=120)
        if run.stdout is not None:
            run.stdout.close()


def assert_nothing_is_lost(folder: Path, before: pl.DataFrame) -> None:
    after = rows_of(folder)
    lost = before.join(after, on=["lane", "activity", "start_ns"], how="anti")
    assert lost.is_empty(), f"readable before the kill, gone after it: {lost}"


@pytest.mark.parametrize("lane", VICTIMS)
def test_kill_9(lane, tmp_path):
    folder = tmp_path / "trace"
    with training(tmp_path) as run:
        victim = process_of(folder, lane)
        before, killed_ns = rows_of(folder), time.time_ns()
        os.kill(victim["pid"], signal.SIGKILL)
        output = ended(run)

    assert run.returncode != 0, output[-4000:]
    trace = rlinsight.open(folder)
    (dead,) = (p for p in trace.processes if p.pid == victim["pid"])
    assert dead.ended_ns is None
    assert killed_ns - dead.flushed_ns < 1e9 + 0.5e9, "it had not written for over a second"
    assert_nothing_is_lost(folder, before)
    assert f"`{lane}`" in output, output[-4000:]
    assert processes_of(folder) == {}


@pytest.mark.long
def test_kill_9_of_the_launcher_leaves_the_training_and_its_trace(tmp_path):
    folder = tmp_path / "trace"
    with training(tmp_path) as run:
        before = rows_of(folder)
        os.kill(run.pid, signal.SIGKILL)
        run.wait(timeout=60)
        try:
            assert_nothing_is_lost(folder, before)
            wait_until(lambda: len(rows_of(folder)) > len(before), 60, "further recording")
        finally:
            stop(folder)


def stop(folder: Path) -> None:
    """End what a killed launcher left behind: the driver first, then what it does not end."""
    for pid in processes_of(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not processes_of(folder), 60, "the end of the training")
