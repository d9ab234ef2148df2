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
from typing import Any

import psutil
import pytest
import yaml
from conftest import CLI, EXAMPLES, cli

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def job(
    folder: Path, name: str, *, steps: int, time_scale: float, rollout: dict, emulated: dict,
    **overrides,
) -> Path:  # fmt: skip
    """Write the emulated example, set up badly.

    Small batches and slow clocks: what verl itself takes must stay small beside emulated times.
    """
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / "emulated_fully_async.yaml").read_text())
    config |= {"name": name, "steps": steps}
    config["resources"]["rollout"] = rollout
    config["emulated"]["time_scale"] = time_scale
    for section, fields in emulated.items():
        config["emulated"][section] |= fields
    config["overrides"] |= {key.replace("__", "."): value for key, value in overrides.items()}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def tuned(config: Path, *options: str) -> dict:
    """Tune within five runs, and return the log."""
    folder = config.parent / "tuning"
    done = cli("tune", config, "--to", folder, "--no-smoke", "--max-runs", "5", "--json", *options,
               timeout=3000)  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    log: dict = json.loads(done.stdout)
    assert log == json.loads((folder / "tuning.json").read_text())
    assert len(log["records"]) <= 5
    return log


def kept(log: dict) -> list[dict]:
    return [one for one in log["records"] if one["decision"] == "kept"]


def too_many_rollouters(folder: Path) -> Path:
    """Ten replicas where six keep the trainer busy."""
    return job(
        folder, "too-many", steps=12, time_scale=0.25,
        rollout={"nodes": 10, "devices_per_node": 4},
        emulated={
            "lengths": {"median": 600, "sigma": 0.4},
            "generation": {"step_s": 0.012, "step_per_response_s": 0.001},
            "training": {"device_s_per_token": 0.014},
        },
        actor_rollout_ref__actor__ppo_mini_batch_size=8,
        actor_rollout_ref__rollout__max_num_seqs=8,
    )  # fmt: skip


def test_too_many_rollouters_are_given_up_or_train(tmp_path):
    log = tuned(too_many_rollouters(tmp_path))
    first, *later = kept(log)
    assert later, "no experiment was kept"
    assert later[0]["candidate"]["rule"] == "fewer_rollouters"
    before, after = first["measured"]["value"], later[-1]["measured"]["value"]
    assert after / before > 1.15
    assert "resources" in later[0]["candidate"]["variables"]


def test_staleness_is_offered_at_its_plateau_after_what_is_of_a_lower_tier(tmp_path):
    """Stale samples cover the first updates of a cycle while fresh ones take as long as three."""
    config = job(
        tmp_path, "staleness", steps=8, time_scale=0.3,
        rollout={"nodes": 4, "devices_per_node": 8},
        emulated={
            "lengths": {"sigma": 0.2},
            "generation": {"step_s": 0.034, "step_per_response_s": 0.0001},
            "training": {"device_s_per_token": 0.0074},
        },
        actor_rollout_ref__actor__ppo_mini_batch_size=8,
        async_training__staleness_threshold=0.3,
        async_training__trigger_parameter_sync_step=8,
    )  # fmt: skip
    log = tuned(config, "--allow-quality-risk")
    first, *later = kept(log)
    found = {one["rule"]: one for one in first["measured"]["candidates"]}
    assert found["raise_staleness"]["overrides"] == ["async_training.staleness_threshold=0.5"]
    assert found["raise_staleness"]["risk"]
    # Fewer syncs are of a lower tier and leave nothing to wait for: staleness stays as it is.
    assert later[0]["candidate"]["rule"] == "sync_step"
    assert later[0]["judged"]["change"] > 0.05


def test_a_killed_tuning_waits_for_its_run_and_goes_on(tmp_path):
    """kill -9 of the loop alone: its run goes on, and the next loop takes it over."""
    config, folder = too_many_rollouters(tmp_path), tmp_path / "tuning"
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
