"""Devices that switch between rollout and training are marked on their replicas."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
from live_rows import rows
from verl_hooked import put_on

import rlinsight
from rlinsight.collectors.verl import switches
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.trainer.ppo.v1.trainer_colocate_async as colocate_module
    import verl.trainer.ppo.v1.trainer_separate_async as separate_module


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((switches,), colocate_module, separate_module)


@pytest.fixture
def trainer():
    """A real separate_async trainer with two hybrid replicas, its remote parts left out."""
    made = object.__new__(separate_module.PPOTrainerSeparateAsync)
    nothing = SimpleNamespace(
        update_weights=lambda *_: None,
        resume_generation_replicas=lambda: None,
        abort_replicas=lambda **_: None,
        sleep_replicas=lambda: None,
    )
    made.checkpoint_manager, made.global_steps = nothing, 4
    made._enable_hybrid_replicas = True
    made.current_mode = separate_module.HybridEngineMode.ROLLOUT
    replicas = [SimpleNamespace(replica_rank=rank) for rank in (0, 1)]
    made.llm_server_manager = SimpleNamespace(
        rollout_replicas=replicas, server_addresses=[], server_handles=[]
    )
    return made


def test_a_switch_is_marked_on_every_hybrid_replica(trainer, monkeypatch, tmp_path):
    monkeypatch.setattr(separate_module.ray, "get", lambda _: None)
    remote = SimpleNamespace(remote=lambda *_: None)
    balancer = SimpleNamespace(add_servers=remote, remove_servers=remote)
    trainer.standalone_server_manager = SimpleNamespace(global_load_balancer=balancer)
    with rlinsight.recording(tmp_path / "t"):
        trainer.switch_to_trainer()
        trainer.switch_to_rollout()

    found = rows(tmp_path / "t", "markers")
    switches_ = [
        (r["lane"], dict(r["attrs"])["from"], dict(r["attrs"])["to"])
        for r in found
        if r["kind"] == "mode_switch"
    ]
    assert switches_ == [
        ("replica0", "rollout", "trainer"),
        ("replica1", "rollout", "trainer"),
        ("replica0", "trainer", "rollout"),
        ("replica1", "trainer", "rollout"),
    ]
    changes = [r["reason"] for r in found if r["kind"] == "balancer"]
    assert changes == ["removed", "removed", "added", "added"]


def test_a_trainer_without_hybrid_replicas_switches_nothing(trainer, tmp_path):
    trainer._enable_hybrid_replicas = False
    with rlinsight.recording(tmp_path / "t"):
        trainer.switch_to_trainer()
    assert rows(tmp_path / "t", "markers") == []


def test_a_colocated_trainer_switches_once_per_step_however_often_it_samples(tmp_path):
    made = object.__new__(colocate_module.PPOTrainerColocateAsync)
    made.global_steps, made.curr_step_profile, made.timing_raw = 7, False, {}
    replicas = [SimpleNamespace(replica_rank=0)]
    made.llm_server_manager = SimpleNamespace(rollout_replicas=replicas)
    made.checkpoint_manager = SimpleNamespace(
        update_weights=lambda *_: None,
        resume_generation_replicas=lambda: None,
        abort_replicas=lambda: None,
        sleep_replicas=lambda: None,
    )
    with rlinsight.recording(tmp_path / "t"):
        made.on_init_end()
        made.on_sample_end()
        made.on_sample_end()
        made.on_step_end()

    found = [dict(r["attrs"]) for r in rows(tmp_path / "t", "markers")]
    sides = [(attrs["from"], attrs["to"]) for attrs in found]
    assert sides == [("init", "rollout"), ("rollout", "trainer"), ("trainer", "rollout")]
