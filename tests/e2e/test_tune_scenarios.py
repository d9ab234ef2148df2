"""Tuning end to end, on emulated devices under verl's real control plane.

Jobs that are set up badly, each in another way; the loop has to find out by itself. A run takes two
to three minutes on two idle cores.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from conftest import CLI, EXAMPLES, cli

EMULATED = EXAMPLES / "emulated"

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def tuned(example: str, folder: Path, *options: str) -> dict:
    """Tune an example of emulated devices within five runs, and return the log."""
    to = folder / "tuning"
    done = cli("tune", EMULATED / f"{example}.yaml", "--to", to, "--no-smoke", "--max-runs", "5",
               "--json", *options, timeout=3000)  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    log: dict = json.loads(done.stdout)
    assert log == json.loads((to / "tuning.json").read_text())
    assert len(log["records"]) <= 5
    return log


def kept(log: dict) -> list[dict]:
    return [one for one in log["records"] if one["decision"] == "kept"]


def changes(log: dict) -> dict[str, dict]:
    """Return the experiments that were kept, by the rule that proposed each."""
    return {one["candidate"]["rule"]: one for one in kept(log) if one["candidate"]}


def gain(log: dict) -> float:
    """Return what was gained in the whole, as a factor of the objective."""
    first, *_, last = (one["measured"]["value"] for one in kept(log))
    return last / first


def test_too_many_rollouters_are_given_up(tmp_path):
    """48 devices generate for 16 that train: a quarter more per device is there to be had."""
    log = tuned("too_many_rollouters", tmp_path)
    assert next(iter(changes(log))) == "fewer_rollouters"
    assert gain(log) > 1.2


def test_staleness_is_raised_to_its_plateau_where_the_sync_step_is_to_stay(tmp_path):
    """A weight sync every 8 updates and a validation every 5 versions, as it is asked for."""
    held = ("async_training.trigger_parameter_sync_step", "trainer.test_freq")
    log = tuned("staleness", tmp_path, "--allow-quality-risk", "--hold", held[0], "--hold", held[1])
    found = changes(log)
    raised = found["raise_staleness"]
    assert raised["candidate"]["overrides"] == ["async_training.staleness_threshold=0.5"]
    assert raised["candidate"]["risk"]
    assert raised["judged"]["change"] > 0.05
    assert log["records"][-1]["document"]["overrides"].items() >= {held[0]: 8, held[1]: 5}.items()


def test_rollouters_that_run_ahead_are_caught_up_with(tmp_path):
    """Fewer of them, then larger micro-batches, then fewer batches ahead: fresher at no cost.

    With larger micro-batches the trainer is fast enough for a few rollouters more; whether these
    come before or after the batches ahead is a matter of what the runs happen to show.
    """
    log = tuned("run_ahead", tmp_path)
    rules = list(changes(log))
    assert rules[:2] == ["fewer_rollouters", "token_budget"]
    assert set(rules[2:]) <= {"more_rollouters", "run_ahead"}
    assert gain(log) > 1.8
    figures = [one["measured"]["figures"] for one in kept(log)]
    ahead = [one["mini-batches ahead"] for one in figures]
    assert ahead[0] > 4.5
    assert ahead[0] > ahead[1] > ahead[2]
    at = 1 + rules.index("run_ahead")
    assert ahead[at] < 2
    assert figures[at]["mean lag"] < 0.75 * figures[at - 1]["mean lag"]


def test_a_killed_tuning_waits_for_its_run_and_goes_on(tmp_path):
    """kill -9 of the loop alone: its run goes on, and the next loop takes it over."""
    config, folder = EMULATED / "too_many_rollouters.yaml", tmp_path / "tuning"
    command = [CLI, "tune", config, "--to", folder, "--no-smoke", "--max-runs", "1"]
    loop = subprocess.Popen([str(part) for part in command], start_new_session=True)
    trace = folder / "runs/00"
    until = time.monotonic() + 180
    while not (trace / "manifest.json").exists():
        assert time.monotonic() < until, "the baseline did not begin"
        time.sleep(0.5)
    os.kill(loop.pid, signal.SIGKILL)
    loop.wait()
    run = [p for p in psutil.process_iter(["cmdline"]) if str(trace) in (p.info["cmdline"] or ())]
    assert run, "the run ended with the loop"
    done = cli("tune", config, "--to", folder, "--no-smoke", "--max-runs", "1", "--json")
    log = json.loads(done.stdout)
    assert [one["decision"] for one in log["records"]] == ["kept"]
    assert log["stopped"].startswith("budget")
    assert not (folder / "runs/01").exists()
