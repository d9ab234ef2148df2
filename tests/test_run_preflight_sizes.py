"""Preflight: nodes, batches, sequences and kernels of a run must fit each other."""

from __future__ import annotations

import json

import pytest
from preflight_facts import ACTOR, ROLLOUT, facts

from rlinsight.runs.checks import batches, sequences, shares, training

# -- nodes ---------------------------------------------------------------------------------


def test_nodes_of_the_job_are_the_sum_of_both_pools():
    good = facts("fully_async", trainer=(2, 8), rollout=(3, 8), resources={"nodes": 5})
    assert shares.nodes_add_up(good) is None
    bad = facts("fully_async", trainer=(2, 8), rollout=(3, 8), resources={"nodes": 4})
    assert "2 trainer + 3 rollout nodes = 5, found 4" in shares.nodes_add_up(bad).message


@pytest.mark.parametrize(
    ("mode", "section"), [("fully_async", "rollout"), ("separate_async", ROLLOUT)]
)
def test_an_override_may_not_contradict_the_resources(mode, section):
    seen = {"trainer.nnodes": 1, f"{section}.nnodes": 4}
    problem = shares.devices_are_said_once(facts(mode, settings=seen))
    assert problem.message == (
        f"`resources.rollout.nodes` says 1, the override {section}.nnodes gives verl 4: set them "
        "in `resources` only"
    )
    assert shares.devices_are_said_once(facts(mode, settings=seen | {f"{section}.nnodes": 1})) is (
        None
    )
    devices = {"trainer.n_gpus_per_node": 4, f"{section}.n_gpus_per_node": 8}
    problem = shares.devices_are_said_once(facts(mode, settings=devices))
    assert "`resources.trainer.devices_per_node` says 8" in problem.message


def test_nodes_that_only_change_pools_contradict_the_resources_too():
    seen = {"trainer.nnodes": 2, "rollout.nnodes": 1}
    found = facts("fully_async", trainer=(1, 8), rollout=(2, 8), settings=seen)
    assert shares.devices_are_said_once(found).message.count("gives verl") == 2


def test_an_override_may_not_contradict_the_mode():
    key = "trainer.v1.trainer_mode"
    problem = shares.mode_is_said_once(facts("sync", settings={key: "colocate_async"}))
    assert "`mode` says sync, the override trainer.v1.trainer_mode gives verl" in problem.message
    for mode, seen in (("sync", "sync"), ("fully_async", "sync"), ("sync", "one_of_my_own")):
        assert shares.mode_is_said_once(facts(mode, settings={key: seen})) is None


# -- batches -------------------------------------------------------------------------------


def test_a_train_batch_of_separate_async_is_a_whole_sync_cycle():
    def seen(batch):
        return {
            "data.train_batch_size": batch,
            f"{ACTOR}.ppo_mini_batch_size": 16,
            "trainer.v1.separate_async.parameter_sync_step": 4,
        }

    assert batches.train_batch_is_whole_cycle(facts("separate_async", settings=seen(64))) is None
    problem = batches.train_batch_is_whole_cycle(facts("separate_async", settings=seen(60)))
    assert "4 x 16 = 64, found 60" in problem.message
    assert batches.train_batch_is_whole_cycle(facts("sync", settings=seen(60))) is None


def test_a_train_batch_holds_a_mini_batch_except_in_fully_async():
    seen = {"data.train_batch_size": 0, f"{ACTOR}.ppo_mini_batch_size": 16}
    assert "smaller than" in batches.train_batch_holds_mini_batch(facts(settings=seen)).message
    assert batches.train_batch_holds_mini_batch(facts("fully_async", settings=seen)) is None


@pytest.mark.parametrize(
    ("mini", "responses", "extra", "fits"),
    [
        (6, 4, {}, True),  # 24 sequences on 8 ranks
        (5, 4, {}, False),  # 20 on 8
        (5, 4, {f"{ACTOR}.ulysses_sequence_parallel_size": 2}, True),  # 20 on 4
        (5, 2, {f"{ACTOR}.strategy": "megatron",
                f"{ACTOR}.megatron.tensor_model_parallel_size": 4}, True),  # 10 on 2
        (5, 1, {f"{ACTOR}.strategy": "megatron",
                f"{ACTOR}.megatron.tensor_model_parallel_size": 4}, False),  # 5 on 2
    ],
)  # fmt: skip
def test_a_mini_batch_divides_by_the_data_parallel_ranks(mini, responses, extra, fits):
    seen = {f"{ACTOR}.ppo_mini_batch_size": mini, f"{ROLLOUT}.n": responses, **extra}
    problem = batches.mini_batch_divides_by_ranks(facts(settings=seen))
    assert (problem is None) is fits


@pytest.mark.parametrize(
    ("mini", "micro", "dynamic", "fits"),
    [
        (16, 4, False, True),  # 64 sequences on 8 ranks: 8 each
        (16, 8, False, True),
        (16, 16, False, False),  # a micro-batch is more than a rank has
        (24, 8, False, False),  # 12 each
        (24, 8, True, True),  # tokens decide, not their number
    ],
)
def test_a_ranks_part_of_a_mini_batch_is_whole_micro_batches(mini, micro, dynamic, fits):
    seen = {
        f"{ACTOR}.ppo_mini_batch_size": mini,
        f"{ROLLOUT}.n": 4,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": micro,
        f"{ACTOR}.use_dynamic_bsz": dynamic,
    }
    problem = batches.mini_batch_divides_by_micro_batches(facts(settings=seen))
    assert (problem is None) is fits
    assert fits or f"ppo_micro_batch_size_per_gpu={4 if mini == 24 else 8}" in problem.message


@pytest.mark.parametrize(
    ("dynamic", "micro", "log_prob", "named"),
    [
        (False, None, None, "both"),
        (False, 4, None, "log_prob_micro_batch_size_per_gpu; set it,"),
        (False, 4, 4, None),
        (True, None, None, None),  # tokens decide
        (None, None, None, None),  # verl's settings are not known
    ],
)
def test_micro_batches_have_a_size_or_a_token_budget(dynamic, micro, log_prob, named):
    seen = {
        f"{ACTOR}.use_dynamic_bsz": dynamic,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": micro,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": log_prob,
    }
    problem = batches.micro_batches_are_sized(facts(settings=seen))
    assert (problem is None) is (named is None)
    assert named is None or named in problem.message


def test_trainer_devices_form_whole_ranks():
    seen = {f"{ACTOR}.ulysses_sequence_parallel_size": 3}
    assert batches.ranks_divide_devices(facts(settings=seen)) is not None
    assert batches.ranks_divide_devices(facts(settings=seen, trainer=(1, 6))) is None
    seen = {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.ulysses_sequence_parallel_size": 3,
            f"{ACTOR}.megatron.tensor_model_parallel_size": 4}  # fmt: skip
    assert batches.ranks_divide_devices(facts(settings=seen)) is None
    problem = batches.ranks_divide_devices(facts(settings=seen, trainer=(1, 6)))
    assert "megatron.context_parallel_size=4" in problem.message


@pytest.mark.parametrize(
    ("mode", "rollout", "fits"),
    [("sync", None, True), ("fully_async", (1, 8), True), ("fully_async", (1, 6), False)],
)
def test_rollout_devices_form_whole_replicas(mode, rollout, fits):
    seen = {f"{ROLLOUT}.tensor_model_parallel_size": 4, f"{ROLLOUT}.data_parallel_size": 1}
    problem = batches.replicas_fill_the_pool(facts(mode, settings=seen, rollout=rollout))
    assert (problem is None) is fits


def test_an_uneven_share_per_replica_is_a_warning():
    seen = {
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.n": 1,
        "data.train_batch_size": 12,
    }
    problem = batches.batch_divides_by_replicas(facts(settings=seen))
    assert problem.severity == "warning"
    assert "12 sequences do not divide by 8 replicas" in problem.message
    even = seen | {f"{ROLLOUT}.n": 2}
    assert batches.batch_divides_by_replicas(facts(settings=even)) is None


# -- sequences -----------------------------------------------------------------------------


def budget(tokens, share=1):
    return {
        "data.max_prompt_length": 1024,
        "data.max_response_length": 3072,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": tokens,
        f"{ACTOR}.ulysses_sequence_parallel_size": share,
    }


def test_the_token_budget_holds_the_longest_sequence():
    check = sequences.token_budget_holds_a_sequence
    assert check(facts(settings=budget(4096))) is None
    assert "(4096 tokens" in check(facts(settings=budget(4095))).message
    assert check(facts(settings=budget(2048, share=2))) is None
    assert "size 2 = 2048, found" in check(facts(settings=budget(2047, share=2))).message
    fixed = budget(1) | {f"{ACTOR}.use_dynamic_bsz": False}
    assert check(facts(settings=fixed)) is None


def test_an_engine_limit_below_the_longest_sequence_is_a_warning():
    seen = budget(4096) | {f"{ROLLOUT}.max_model_len": 4000}
    assert sequences.engine_takes_a_sequence(facts(settings=seen)).severity == "warning"
    seen[f"{ROLLOUT}.max_model_len"] = 4096
    assert sequences.engine_takes_a_sequence(facts(settings=seen)) is None


@pytest.mark.parametrize("nested", [False, True])
def test_an_engine_longer_than_the_models_positions_is_refused_before_the_start(tmp_path, nested):
    positions = {"max_position_embeddings": 1024}
    config = {"text_config": positions} if nested else positions
    (tmp_path / "config.json").write_text(json.dumps(config))
    check = sequences.model_takes_a_sequence
    seen = {f"{ROLLOUT}.max_model_len": 1025}
    assert "1024 positions" in check(facts(settings=seen, model=str(tmp_path))).message
    seen[f"{ROLLOUT}.max_model_len"] = 1024
    assert check(facts(settings=seen, model=str(tmp_path))) is None
    assert check(facts(settings=seen, model=str(tmp_path / "elsewhere"))) is None


@pytest.mark.parametrize(
    ("config", "is_linear"),
    [
        ({"model_type": "qwen2"}, False),
        ({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}}, True),
        ({"model_type": "qwen3_next"}, True),
        ({"model_type": "x", "layer_types": ["full_attention", "linear_attention"]}, True),
        ({"model_type": "x", "text_config": {"layer_types": ["linear_attention"]}}, True),
        ({"model_type": "x", "layer_types": ["full_attention"]}, False),
    ],
)
def test_linear_attention_is_not_split_over_devices(tmp_path, config, is_linear):
    (tmp_path / "config.json").write_text(json.dumps(config))
    seen = {f"{ACTOR}.ulysses_sequence_parallel_size": 2}
    problem = sequences.linear_attention_is_not_split(facts(settings=seen, model=str(tmp_path)))
    assert (problem is not None) is is_linear
    alone = facts(settings={f"{ACTOR}.ulysses_sequence_parallel_size": 1}, model=str(tmp_path))
    assert sequences.linear_attention_is_not_split(alone) is None


# -- training ------------------------------------------------------------------------------

FUSED = "actor_rollout_ref.model.use_fused_kernels"


@pytest.fixture
def flash_attn(monkeypatch):
    """Say whether flash-attn is installed."""

    def say(is_installed):
        monkeypatch.setattr(training, "fused_log_probs", lambda: is_installed)

    return say


def test_a_loop_over_tokens_is_warned_of(flash_attn):
    flash_attn(False)
    problem = training.log_probs_are_vectorized(facts(device="cuda"))
    assert "Python loop over tokens" in problem.message
    assert problem.severity == "warning"
    assert training.log_probs_are_vectorized(facts(device="cuda", settings={FUSED: True})) is None
    assert training.log_probs_are_vectorized(facts(device="cpu")) is None
    flash_attn(True)
    assert training.log_probs_are_vectorized(facts(device="cuda")) is None


@pytest.mark.parametrize(
    ("tied", "strategy", "is_refused"),
    [(False, "fsdp2", True), (True, "fsdp2", False), (False, "fsdp", False)],
)
def test_fused_kernels_that_would_meet_a_sharded_head(tmp_path, tied, strategy, is_refused):
    (tmp_path / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    settings = {FUSED: True, f"{ACTOR}.strategy": strategy}
    found = training.fused_kernels_find_their_weights(facts(settings=settings, model=str(tmp_path)))
    assert (found is not None) is is_refused
    if is_refused:
        assert "mixed torch.Tensor and DTensor" in found.message


def test_of_an_unknown_model_nothing_is_said():
    settings = {FUSED: True, f"{ACTOR}.strategy": "fsdp2"}
    found = training.fused_kernels_find_their_weights(facts(settings=settings, model="org/model"))
    assert found is None
