"""Knobs: read from a run's configuration, changed by name or by verl's override, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlinsight
from rlinsight.analyzers.simulate import Knobs
from rlinsight.analyzers.simulate.knobs import MODES, knobs_of_run
from rlinsight.analyzers.simulate.overrides import (
    OVERRIDES,
    WORKLOAD_KNOBS,
    knob_name,
    knobs_of_mode,
    override,
)
from rlinsight.errors import ConfigError

SAMPLES = Path(__file__).parent.parent / "sample_traces"


def of_sample(mode: str) -> Knobs:
    trace = rlinsight.open(SAMPLES / mode)
    return knobs_of_run(trace.mode, trace.manifest.config, trace.topology)


def test_a_run_is_read_from_its_configuration():
    knobs = of_sample("fully_async")
    assert (knobs.staleness_threshold, knobs.sync_step, knobs.mini_batch) == (0.5, 2, 4)
    assert (knobs.trainer_devices, knobs.rollout_devices) == (1, 1)
    assert (knobs.hybrid_replicas, knobs.standalone_replicas) == (1, 1)
    assert (knobs.validation_interval, knobs.checkpoint_interval) == (5, None)
    assert (knobs.group_size, knobs.max_num_seqs, knobs.partial_rollout) == (4, 4, True)
    assert knobs.token_budget is None  # micro-batches of a fixed size: the budget is not used
    assert knobs.max_required_samples == 12

    knobs = of_sample("separate_async")
    assert (knobs.sync_step, knobs.train_batch, knobs.update_prompts) == (2, 8, 4)
    assert (knobs.hybrid_switch, knobs.warm_up_batches, knobs.max_off_policy) == (True, 1, 8)


@pytest.mark.parametrize("mode", MODES)
def test_every_override_is_in_the_configuration_of_a_run(mode):
    config = json.loads((SAMPLES / mode / "manifest.json").read_text())["config"]
    for key in OVERRIDES[mode].values():
        node = config
        for part in key.split("."):
            assert part in node, key
            node = node[part]


@pytest.mark.parametrize("mode", MODES)
def test_knobs_have_exact_overrides(mode):
    knobs = of_sample(mode)
    for name, value, key in knobs_of_mode(knobs):
        assert knob_name(mode, name) == name
        if name in OVERRIDES[mode]:
            assert knob_name(mode, key) == name
            assert override(mode, name, value).startswith(f"{key}=")
        elif name in WORKLOAD_KNOBS:
            assert override(mode, name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("staleness_threshold", 0.5, "async_training.staleness_threshold=0.5"),
        ("partial_rollout", False, "async_training.partial_rollout=false"),
        ("validation_interval", None, "trainer.test_freq=-1"),
        ("token_budget", 8192, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192"),
    ],
)
def test_overrides_are_written_as_hydra_reads_them(name, value, text):
    assert override("fully_async", name, value) == text


def test_a_change_may_be_named_either_way():
    knobs = of_sample("fully_async")
    by_knob = knobs.changed({"staleness_threshold": 0.7})
    assert knobs.changed({"async_training.staleness_threshold": 0.7}) == by_knob
    assert by_knob.max_required_samples == int(4 * 1.7 * 2)


def test_replicas_are_whole_multiples_of_tensor_parallelism():
    knobs = of_sample("fully_async").changed({"trainer_validates": False})
    more = knobs.changed({"rollout_replicas": 3, "tensor_parallel": 2})
    assert (more.rollout_devices, more.standalone_replicas) == (6, 3)
    with pytest.raises(ConfigError, match="multiple of `tensor_parallel`"):
        more.changed({"rollout_devices": 5})


def test_the_train_batch_follows_sync_step_and_mini_batch():
    # verl asserts train_batch = sync step x mini-batch in separate_async.
    knobs = of_sample("separate_async")
    assert knobs.changed({"sync_step": 4}).train_batch == 16
    assert knobs.changed({"mini_batch": 8}).train_batch == 16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warm_up_batches": 2}, "a knob of fully_async"),
        ({"bogus": 2}, "a knob of the simulator"),
        ({"mini_batch": 0}, "`mini_batch` of at least 1"),
        ({"rollout_devices": 0}, "`rollout_devices` of at least 1"),
        ({"staleness_threshold": -1.0}, "`staleness_threshold` of at least 0"),
    ],
)
def test_what_verl_would_refuse_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        of_sample("fully_async").changed(change)


@pytest.mark.parametrize("change", [{"train_batch": 16}, {"train_batch": 16, "sync_step": 2}])
def test_a_train_batch_that_is_no_whole_cycle_is_refused_in_separate_async(change):
    with pytest.raises(ConfigError, match=r"`sync_step` x `mini_batch` \(8\)"):
        of_sample("separate_async").changed(change)
    whole = of_sample("separate_async").changed({"train_batch": 16, "mini_batch": 8})
    assert whole.optimizer_steps == 1


def test_a_mini_batch_that_is_not_full_is_an_optimizer_step_too():
    # verl pads the batch up to whole mini-batches.
    knobs = Knobs(mode="sync", train_batch=12, mini_batch=8)
    assert knobs.optimizer_steps == 2
    assert knobs.changed({"mini_batch": 6}).optimizer_steps == 2
    with pytest.raises(ConfigError, match=r"at most `train_batch` \(12\), found 16"):
        knobs.changed({"mini_batch": 16})


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"data_parallel_size": 2}, "`data_parallel_size` 2"),
        ({"pipeline_model_parallel_size": 4}, "`pipeline_model_parallel_size` 4"),
        ({"disaggregation": {"enabled": True}}, "found them apart"),
    ],
)
def test_replicas_of_several_engines_are_not_taken_for_several_replicas(settings, found):
    """8 devices at data parallelism 2 are 4 replicas of verl, not 8."""
    rollout = {"nnodes": 1, "n_gpus_per_node": 8, "tensor_model_parallel_size": 1}
    config = {"actor_rollout_ref": {"rollout": {**rollout, **settings}}}
    with pytest.raises(ConfigError, match=found):
        knobs_of_run("separate_async", config)


def test_other_modes_cannot_be_simulated():
    with pytest.raises(ConfigError, match="found `one_step_off`"):
        knobs_of_run("one_step_off", {})


def test_fully_async_replicas_need_rollout_devices_only():
    knobs = Knobs(mode="fully_async", trainer_devices=3, rollout_devices=8, tensor_parallel=4)
    assert (knobs.hybrid_replicas, knobs.standalone_replicas) == (0, 2)
