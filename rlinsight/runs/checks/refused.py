"""What verl itself refuses, or fails of when training is over; said before anything starts.

The conditions are those of verl 0.9.1: `utils/config.py:validate_config`, the configurations of
actor, reference policy, critic and rollout, and the assertions and the end of fully_async.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from rlinsight.analyzers import parallel
from rlinsight.runs.checks.facts import Check, Facts, Problem

_ACTOR: Final = "actor_rollout_ref.actor"
_REFERENCE: Final = "actor_rollout_ref.ref"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_PACKED: Final = "actor_rollout_ref.model.use_remove_padding"
_PIPELINE: Final = "pipeline_model_parallel_size"
_ENGINES: Final = frozenset({"vllm", "sglang", "trtllm"})


def train_batch_divides_by_devices(facts: Facts) -> Problem | None:
    """Without a token budget, a train batch divides by the trainer's devices.

    By all of them, also where a group of them shares each sequence; under Megatron by the
    data-parallel ranks x the micro-batch.
    """
    prompts, responses = facts.number("data.train_batch_size"), facts.number(f"{_ROLLOUT}.n")
    if facts.managed.mode == "fully_async" or prompts is None or responses is None:
        return None
    if facts.settings.get(f"{_ACTOR}.use_dynamic_bsz") is not False:
        return None
    least, what = _least_batch(facts)
    if least is None or prompts * responses % least == 0:
        return None
    return Problem(
        f"verl needs a train batch that divides by {what} = {least}, found {prompts} prompts x "
        f"{responses} responses = {prompts * responses} sequences; change data.train_batch_size, "
        f"or set {_ACTOR}.use_dynamic_bsz=true"
    )


def _least_batch(facts: Facts) -> tuple[int | None, str]:
    """Return the smallest train batch, in sequences, and what it is made of."""
    get, devices = facts.settings.get, facts.managed.resources.trainer.devices
    if get(f"{_ACTOR}.strategy") != "megatron":
        return devices, "the trainer's devices"
    ranks = parallel.data_parallel_ranks(get, devices)
    micro = facts.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    known = ranks * micro if ranks and micro else None
    return known, "data-parallel ranks x ppo_micro_batch_size_per_gpu"


def other_micro_batches_are_sized(facts: Facts) -> Problem | None:
    """Reference policy and critic, if there are any, need a micro-batch or a token budget too."""
    missing = list(_unsized(facts))
    if not missing:
        return None
    return Problem(
        f"verl has no default for {' and '.join(missing)}; set "
        f"{'it' if len(missing) == 1 else 'both'}, or {_ACTOR}.use_dynamic_bsz=true"
    )


def _unsized(facts: Facts) -> Iterator[str]:
    get = facts.settings.get
    budget = get(f"{_ACTOR}.use_dynamic_bsz") is not False
    if facts.managed.mode == "fully_async":  # which does not ask whether the actor has one
        budget = get(f"{_REFERENCE}.log_prob_use_dynamic_bsz") is not False
    size = f"{_REFERENCE}.log_prob_micro_batch_size_per_gpu"
    if _has_reference(facts) and not budget and get(size) is None:
        yield size
    budget = get("critic.use_dynamic_bsz") is not False
    size = "critic.ppo_micro_batch_size_per_gpu"
    if _has_critic(facts) and not budget and get(size) is None:
        yield size


def _has_reference(facts: Facts) -> bool:
    get = facts.settings.get
    return bool(get("algorithm.use_kl_in_reward") or get(f"{_ACTOR}.use_kl_loss"))


def _has_critic(facts: Facts) -> bool:
    enabled = facts.settings.get("critic.enable")
    if enabled is None:
        return bool(facts.settings.get("algorithm.adv_estimator") == "gae")
    return bool(enabled)


def validation_can_be_counted(facts: Facts) -> Problem | None:
    """After its last step, fully_async divides by `trainer.test_freq` whatever it is."""
    if facts.managed.mode != "fully_async" or facts.number("trainer.test_freq") != 0:
        return None
    return Problem(
        "trainer.test_freq=0 fails in fully_async when training is over, before the last "
        "checkpoint is saved (verl divides by it); set trainer.test_freq=-1 to not validate"
    )


def trainer_is_recorded(facts: Facts) -> Problem | None:
    """The legacy trainer knows no mode but `sync`, and has no hooks."""
    config = facts.managed
    legacy = facts.settings.get("trainer.use_v1") is False
    if not legacy or config.mode == "fully_async" or config.entry is not None:
        return None
    if config.mode == "sync":
        return Problem(
            "the legacy trainer (trainer.use_v1=false) is not recorded: there will be ranks and "
            "requests, but no steps",
            severity="warning",
        )
    return Problem(
        f"trainer.use_v1=false runs the legacy trainer, which ignores the mode `{config.mode}`; "
        "leave it out"
    )


def rollout_parallelism_is_known(facts: Facts) -> Problem | None:
    """Verl's engines do not pipeline, and their experts are spread over all of a replica."""
    get, name = facts.settings.get, facts.settings.get(f"{_ROLLOUT}.name")
    stages, experts = (
        facts.number(f"{_ROLLOUT}.{kind}_parallel_size") or 1
        for kind in ("pipeline_model", "expert")
    )
    if stages > 1 and name in _ENGINES:
        return Problem(f"verl's {name} does not pipeline; set {_ROLLOUT}.{_PIPELINE}=1")
    sizes = [get(f"{_ROLLOUT}.{kind}_parallel_size") for kind in ("tensor_model", "data")]
    whole = math.prod(size for size in sizes if isinstance(size, int))
    if experts in (1, whole) or name == "trtllm":
        return None
    return Problem(
        f"{_ROLLOUT}.expert_parallel_size must be 1 or tensor_model_parallel_size x "
        f"data_parallel_size = {whole}, found {experts}"
    )


def shared_sequences_are_packed(facts: Facts) -> Problem | None:
    """Ulysses cuts packed sequences, not padded ones; an emulated engine has neither."""
    if facts.config.device == "emulated":
        return None
    share, get = facts.number(parallel.ULYSSES) or 1, facts.settings.get
    if share == 1 or get(_PACKED) is not False or get(f"{_ACTOR}.strategy") == "megatron":
        return None
    return Problem(f"{parallel.ULYSSES}={share} needs {_PACKED}=true")


def fully_async_is_set_up(facts: Facts) -> Problem | None:
    """What fully_async asserts while its workers start."""
    if facts.managed.mode != "fully_async":
        return None
    wanted = {f"{_ROLLOUT}.calculate_log_probs": True, "actor_rollout_ref.hybrid_engine": False}
    wrong = [
        f"{key}={str(value).lower()}"
        for key, value in wanted.items()
        if facts.settings.get(key) is (not value)
    ]
    return Problem(f"fully_async needs {' and '.join(wrong)}") if wrong else None


def emulated_devices_have_no_critic(facts: Facts) -> Problem | None:
    """Emulated devices register an engine with verl for the policy only."""
    if facts.config.device != "emulated" or not _has_critic(facts):
        return None
    return Problem(
        "a critic is not emulated, and verl would find no engine for it; set "
        "algorithm.adv_estimator=grpo, or another estimator that needs none (verl's default, gae, "
        "does)"
    )


CHECKS: Final = (
    Check("train batch by devices", train_batch_divides_by_devices),
    Check("other micro-batches", other_micro_batches_are_sized),
    Check("validation frequency", validation_can_be_counted),
    Check("trainer", trainer_is_recorded),
    Check("rollout parallelism", rollout_parallelism_is_known),
    Check("sequence parallelism", shared_sequences_are_packed),
    Check("fully_async", fully_async_is_set_up),
    Check("emulated critic", emulated_devices_have_no_critic),
)
