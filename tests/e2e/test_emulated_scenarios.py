"""What practitioners saw, on emulated devices under verl's real control plane.

Each scenario is a series of runs that differ in one thing after the other; a run takes three
minutes on two idle cores. `test_tune_scenarios.py` lets the loop find such changes by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import EXAMPLES, cli

import rlinsight

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


def trained(example: str, folder: Path, name: str, **changes: Any) -> Path:
    """Run an example, changed section by section, and return its trace."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    config["name"] = name
    for section, values in changes.items():
        config[section] = {**config[section], **values} if isinstance(values, dict) else values
    profile = folder / f"{name}.yaml"
    profile.write_text(yaml.safe_dump(config))
    done = cli("run", "--profile", profile, "--trace", folder / name)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return folder / name


def test_staleness_pays_up_to_a_half_and_then_no_more(tmp_path):
    """A weight sync every 8 updates: 0.3, 0.5 and 0.7 cover 2, 4 and 5 of them."""
    thresholds = (0.3, 0.5, 0.7)
    traces = [
        trained(
            "emulated/staleness", tmp_path, f"staleness-{threshold}",
            overrides={"async_training.staleness_threshold": threshold},
        )
        for threshold in thresholds
    ]  # fmt: skip
    waits = [rlinsight.open(t).analyze().pools["trainer"].idle_ratio for t in traces]
    assert waits[0] - waits[1] > 0.05
    assert abs(waits[1] - waits[2]) < 0.5 * (waits[0] - waits[1])
    series = json.loads(cli("compare", *traces, "--json").stdout)["series"]
    assert series["variable"]["key"] == "async_training.staleness_threshold"
    rates = {one["metric"]: one for one in series["responses"]}["tokens_per_s_per_device"]
    assert rates["plateau"]["start"] == 0.5
    advice = json.loads(cli("advise", traces[0], "--json").stdout)
    (raised,) = (f for f in advice["findings"] if f["rule"] == "raise_staleness")
    assert raised["overrides"] == ["async_training.staleness_threshold=0.5"]
    assert raised["risk"]


def test_rollouters_that_run_ahead_are_caught_up_with_in_steps(tmp_path):
    """Five mini-batches ahead; then more trainers, less warm-up, and fewer micro-batches."""
    larger_share = {
        "resources": {
            "trainer": {"nodes": 2, "devices_per_node": 8},
            "rollout": {"nodes": 2, "devices_per_node": 8},
        }
    }
    less_warm_up = {"trainer.v1.separate_async.num_warmup_batches": 2}
    larger_budget = {
        f"actor_rollout_ref.{part}_max_token_len_per_gpu": 3 * 4300
        for part in ("actor.ppo", "rollout.log_prob")
    }
    series: dict[str, dict[str, Any]] = {
        "ahead": {},
        "share": larger_share,
        "warm-up": larger_share | {"overrides": less_warm_up},
        "budget": larger_share | {"overrides": less_warm_up | larger_budget},
    }
    reports = [
        rlinsight.open(trained("emulated/run_ahead", tmp_path, name, **changes)).analyze()
        for name, changes in series.items()
    ]
    ahead = [report.run_ahead.mean_mini_batches for report in reports]
    assert ahead[0] > 4.5
    assert sorted(ahead, reverse=True) == ahead
    assert ahead[-1] < 1.5
    rates = [report.throughput.tokens_per_s_per_device.value for report in reports]
    assert rates[-1] / rates[0] > 1.3
