"""Preflight: what verl refuses, or fails of when training is over."""

from __future__ import annotations

import pytest
from preflight_facts import ACTOR, ROLLOUT, facts

from rlinsight.runs import preflight
from rlinsight.runs.checks import refused

REFERENCE = "actor_rollout_ref.ref"
MEGATRON = {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron.tensor_model_parallel_size": 2}


@pytest.mark.parametrize(
    ("prompts", "more", "fits"),
    [
        (8, {}, True),
        (6, {}, False),  # 6 on 4 devices
        (6, {f"{ROLLOUT}.n": 2}, True),  # 12 on 4
        # Two ranks of two devices: a mini-batch divides by the ranks, the batch by the devices.
        (6, {f"{ACTOR}.ulysses_sequence_parallel_size": 2}, False),
        (6, {f"{ACTOR}.use_dynamic_bsz": True}, True),
        (6, MEGATRON | {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3}, True),  # 2 ranks x 3
        (6, MEGATRON | {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 2}, False),  # 2 ranks x 2
    ],
)
def test_a_train_batch_divides_by_what_verl_divides_it_by(prompts, more, fits):
    seen = {"data.train_batch_size": prompts, f"{ROLLOUT}.n": 1, f"{ACTOR}.use_dynamic_bsz": False}
    found = refused.train_batch_divides_by_devices(facts(settings=seen | more, trainer=(1, 4)))
    assert (found is None) is fits
    assert fits or "= 4, found" in found.message


def test_fully_async_has_no_train_batch():
    seen = {"data.train_batch_size": 0, f"{ROLLOUT}.n": 1, f"{ACTOR}.use_dynamic_bsz": False}
    run = facts("fully_async", settings=seen, trainer=(1, 4))
    assert refused.train_batch_divides_by_devices(run) is None


@pytest.mark.parametrize(
    ("mode", "more", "named"),
    [
        ("sync", {}, []),
        ("sync", {f"{ACTOR}.use_kl_loss": True}, [f"{REFERENCE}.log_prob_micro"]),
        ("sync", {"algorithm.use_kl_in_reward": True}, [f"{REFERENCE}.log_prob_micro"]),
        ("sync", {f"{ACTOR}.use_kl_loss": True,
                  f"{REFERENCE}.log_prob_micro_batch_size_per_gpu": 1}, []),
        ("sync", {f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.use_dynamic_bsz": True}, []),
        ("fully_async", {f"{ACTOR}.use_kl_loss": True,
                         f"{REFERENCE}.log_prob_use_dynamic_bsz": True}, []),
        ("fully_async", {f"{ACTOR}.use_kl_loss": True}, [f"{REFERENCE}.log_prob_micro"]),
        ("sync", {"critic.enable": True}, ["critic.ppo_micro_batch_size_per_gpu"]),
        ("sync", {"algorithm.adv_estimator": "gae"}, ["critic.ppo_micro_batch_size_per_gpu"]),
        ("sync", {"algorithm.adv_estimator": "gae", "critic.enable": False}, []),
        ("sync", {"critic.enable": True, "critic.ppo_micro_batch_size_per_gpu": 2}, []),
        ("sync", {"critic.enable": True, "critic.use_dynamic_bsz": True}, []),
    ],
)  # fmt: skip
def test_reference_and_critic_need_a_size_of_their_own(mode, more, named):
    seen = {
        f"{ACTOR}.use_dynamic_bsz": False,
        f"{REFERENCE}.log_prob_use_dynamic_bsz": False,
        "critic.use_dynamic_bsz": False,
        "algorithm.adv_estimator": "grpo",
    }
    found = refused.other_micro_batches_are_sized(facts(mode, settings=seen | more))
    assert (found is None) is (not named)
    assert all(name in found.message for name in named)


@pytest.mark.parametrize(
    ("mode", "frequency", "fits"),
    [
        ("fully_async", 0, False),
        ("fully_async", -1, True),
        ("fully_async", 5, True),
        ("sync", 0, True),
    ],
)
def test_a_frequency_that_verl_divides_by_is_not_zero(mode, frequency, fits):
    found = refused.validation_can_be_counted(
        facts(mode, settings={"trainer.test_freq": frequency})
    )
    assert (found is None) is fits


@pytest.mark.parametrize(
    ("mode", "legacy", "severity"),
    [
        ("sync", False, None),
        ("sync", True, "warning"),
        ("colocate_async", True, "error"),
        ("separate_async", True, "error"),
        ("fully_async", True, None),  # it has a trainer of its own
    ],
)
def test_the_legacy_trainer_has_neither_modes_nor_hooks(mode, legacy, severity):
    found = refused.trainer_is_recorded(facts(mode, settings={"trainer.use_v1": not legacy}))
    assert (found and found.severity) == severity


@pytest.mark.parametrize(
    ("name", "sizes", "fits"),
    [
        ("vllm", {"tensor_model": 2, "data": 2, "pipeline_model": 1, "expert": 1}, True),
        ("vllm", {"pipeline_model": 2}, False),
        ("emulated", {"pipeline_model": 2}, True),
        ("vllm", {"tensor_model": 2, "data": 4, "expert": 8}, True),
        ("vllm", {"tensor_model": 2, "data": 4, "expert": 4}, False),
        ("trtllm", {"tensor_model": 2, "data": 4, "expert": 4}, True),
        ("vllm", {}, True),
    ],
)
def test_a_rollout_is_spread_as_verl_spreads_it(name, sizes, fits):
    seen = {f"{ROLLOUT}.{kind}_parallel_size": size for kind, size in sizes.items()}
    found = refused.rollout_parallelism_is_known(facts(settings=seen | {f"{ROLLOUT}.name": name}))
    assert (found is None) is fits


@pytest.mark.parametrize(
    ("share", "packed", "strategy", "fits"),
    [(2, False, "fsdp", False), (2, True, "fsdp", True), (1, False, "fsdp", True),
     (2, False, "megatron", True)],
)  # fmt: skip
def test_sequences_are_shared_only_where_they_are_packed(share, packed, strategy, fits):
    seen = {
        f"{ACTOR}.ulysses_sequence_parallel_size": share,
        "actor_rollout_ref.model.use_remove_padding": packed,
        f"{ACTOR}.strategy": strategy,
    }
    assert (refused.shared_sequences_are_packed(facts(settings=seen)) is None) is fits
    assert refused.shared_sequences_are_packed(facts(settings=seen, device="emulated")) is None


@pytest.mark.parametrize(
    ("mode", "log_probs", "hybrid", "named"),
    [
        ("fully_async", True, False, []),
        ("fully_async", False, False, ["calculate_log_probs=true"]),
        ("fully_async", False, True, ["calculate_log_probs=true", "hybrid_engine=false"]),
        ("sync", False, True, []),
    ],
)
def test_what_fully_async_asserts_is_asked_first(mode, log_probs, hybrid, named):
    seen = {
        f"{ROLLOUT}.calculate_log_probs": log_probs,
        "actor_rollout_ref.hybrid_engine": hybrid,
    }
    found = refused.fully_async_is_set_up(facts(mode, settings=seen))
    assert (found is None) is (not named)
    assert all(name in found.message for name in named)


@pytest.mark.parametrize(
    ("device", "estimator", "fits"),
    [("emulated", "gae", False), ("emulated", "grpo", True), ("cpu", "gae", True)],
)
def test_emulated_devices_train_no_critic(device, estimator, fits):
    run = facts(settings={"algorithm.adv_estimator": estimator}, device=device)
    assert (refused.emulated_devices_have_no_critic(run) is None) is fits


def test_they_are_asked_before_a_run():
    assert set(refused.CHECKS) <= set(preflight.CHECKS)
