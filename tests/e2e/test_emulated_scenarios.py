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
    base: dict[str, Any] = {
        "steps": 16,
        "resources": {
            "trainer": {"nodes": 1, "devices_per_node": 8},
            "rollout": {"nodes": 3, "devices_per_node": 8},
        },
        "emulated": {
            "time_scale": 0.2,
            "lengths": {"median": 1000, "sigma": 0.4},
            "generation": {
                "step_s": 0.006, "step_per_response_s": 0.0004,
                "tensor_parallel": 4, "kv_cache_tokens": 500000,
            },
            "training": {"fixed_s": 1.0, "per_micro_batch_s": 8.0, "device_s_per_token": 0.0004},
        },
        "overrides": {
            "data.train_batch_size": 16,
            "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 4300,
            "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu": 4300,
            "trainer.v1.separate_async.parameter_sync_step": 1,
            "trainer.v1.separate_async.num_warmup_batches": 7,
            "trainer.v1.separate_async.hybrid_rollout.enable_switch": False,
            "trainer.test_freq": -1,
        },
    }  # fmt: skip
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
    series = {
        "ahead": base,
        "share": base | larger_share,
        "warm-up": base | larger_share | {"overrides": base["overrides"] | less_warm_up},
        "budget": base | larger_share
        | {"overrides": base["overrides"] | less_warm_up | larger_budget},
    }  # fmt: skip
    reports = [
        rlinsight.open(trained("emulated_separate_async", tmp_path, name, **changes)).analyze()
        for name, changes in series.items()
    ]
    ahead = [report.run_ahead.mean_mini_batches for report in reports]
    assert ahead[0] > 5
    assert sorted(ahead, reverse=True) == ahead
    assert ahead[-1] < 1.5
    rates = [report.throughput.tokens_per_s_per_device.value for report in reports]
    assert rates[-1] / rates[0] > 1.3
