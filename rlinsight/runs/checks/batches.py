"""Batch sizes, ranks and replicas must divide; verl finds out only after minutes of start-up."""

from __future__ import annotations

import math
from typing import Final

from rlinsight.analyzers import parallel
from rlinsight.runs.checks.facts import Check, Facts, Problem

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"


def overrides_are_known(facts: Facts) -> Problem | None:
    """The configuration of verl accepts every override."""
    return Problem(facts.settings_error) if facts.settings_error else None


def train_batch_is_whole_cycle(facts: Facts) -> Problem | None:
    """In separate_async a train batch is one mini-batch per local step of a sync cycle."""
    if facts.managed.mode != "separate_async":
        return None
    batch = facts.number("data.train_batch_size")
    mini = facts.number(f"{_ACTOR}.ppo_mini_batch_size")
    every = facts.number("trainer.v1.separate_async.parameter_sync_step")
    if batch is None or mini is None or every is None or batch == mini * every:
        return None
    return Problem(
        f"separate_async needs data.train_batch_size = parameter_sync_step x ppo_mini_batch_size "
        f"= {every} x {mini} = {every * mini}, found {batch}; set "
        f"data.train_batch_size={every * mini}"
    )


def mini_batch_divides_by_ranks(facts: Facts) -> Problem | None:
    """Every data-parallel rank gets the same number of sequences of a mini-batch."""
    mini = facts.number(f"{_ACTOR}.ppo_mini_batch_size")
    responses = facts.number(f"{_ROLLOUT}.n")
    ranks = data_parallel_ranks(facts)
    if mini is None or responses is None or ranks is None:
        return None
    if mini * responses % ranks == 0:
        return None
    return Problem(
        f"a mini-batch of {mini} prompts x {responses} responses = {mini * responses} sequences "
        f"does not divide by {ranks} data-parallel ranks; change "
        f"{_ACTOR}.ppo_mini_batch_size, {_ROLLOUT}.n or the trainer's devices"
    )


def mini_batch_divides_by_micro_batches(facts: Facts) -> Problem | None:
    """A rank's part of a mini-batch is whole micro-batches, where their size is fixed."""
    mini = facts.number(f"{_ACTOR}.ppo_mini_batch_size")
    responses = facts.number(f"{_ROLLOUT}.n")
    micro = facts.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu")
    ranks = data_parallel_ranks(facts)
    if facts.settings.get(f"{_ACTOR}.use_dynamic_bsz") or not (
        mini and responses and micro and ranks
    ):
        return None
    mine = mini * responses // ranks
    if mini * responses % ranks or mine % micro == 0:
        return None
    return Problem(
        f"a rank's part of a mini-batch, {mini} prompts x {responses} responses / {ranks} ranks = "
        f"{mine} sequences, does not divide into micro-batches of {micro}; set "
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu={math.gcd(mine, micro)} or "
        f"{_ACTOR}.use_dynamic_bsz=true"
    )


def micro_batches_are_sized(facts: Facts) -> Problem | None:
    """Without a token budget verl has no default for the size of a micro-batch."""
    if facts.settings.get(f"{_ACTOR}.use_dynamic_bsz") is not False:
        return None
    keys = (
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    )
    missing = [key for key in keys if facts.settings.get(key) is None]
    if not missing:
        return None
    return Problem(
        f"verl has no default for {' and '.join(missing)}; set "
        f"{'it' if len(missing) == 1 else 'both'}, or {_ACTOR}.use_dynamic_bsz=true"
    )


def data_parallel_ranks(facts: Facts) -> int | None:
    """Return the trainer's data-parallel size, or None where its devices form no whole ranks."""
    devices = facts.managed.resources.trainer.devices
    return parallel.data_parallel_ranks(facts.settings.get, devices)


def ranks_divide_devices(facts: Facts) -> Problem | None:
    """The trainer's devices form whole data-parallel ranks."""
    devices, get = facts.managed.resources.trainer.devices, facts.settings.get
    size = parallel.model_parallel_size(get)
    if devices % size == 0:
        return None
    return Problem(
        f"{devices} trainer devices do not divide by "
        f"{' x '.join(parallel.model_parallel_keys(get))}={size}"
    )


def train_batch_holds_mini_batch(facts: Facts) -> Problem | None:
    """A train batch has at least one mini-batch (not in fully_async, which has no train batch)."""
    batch = facts.number("data.train_batch_size")
    mini = facts.number(f"{_ACTOR}.ppo_mini_batch_size")
    if facts.managed.mode == "fully_async" or batch is None or mini is None or batch >= mini:
        return None
    return Problem(
        f"data.train_batch_size={batch} is smaller than {_ACTOR}.ppo_mini_batch_size={mini}; "
        "raise the one or lower the other"
    )


def devices_per_replica(facts: Facts) -> int | None:
    """Return the devices that one rollout replica occupies."""
    keys = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    sizes = [facts.number(f"{_ROLLOUT}.{key}") for key in keys]
    if sizes[0] is None:
        return None
    return sizes[0] * (sizes[1] or 1) * (sizes[2] or 1)


def rollout_devices(facts: Facts) -> int:
    """Return the devices that generate: a pool of their own, or the trainer's."""
    resources = facts.managed.resources
    return resources.rollout.devices if resources.rollout else resources.trainer.devices


def replicas_fill_the_pool(facts: Facts) -> Problem | None:
    """The generating devices form whole replicas."""
    size, devices = devices_per_replica(facts), rollout_devices(facts)
    if size is None or devices % size == 0:
        return None
    return Problem(
        f"{devices} rollout devices do not divide into replicas of {size} "
        f"({_ROLLOUT}.tensor_model_parallel_size x data_parallel_size x "
        "pipeline_model_parallel_size)"
    )


def batch_divides_by_replicas(facts: Facts) -> Problem | None:
    """An uneven share leaves a replica idle at the end of every batch."""
    size, prompts = devices_per_replica(facts), facts.number("data.train_batch_size")
    responses = facts.number(f"{_ROLLOUT}.n")
    if not size or not prompts or not responses or rollout_devices(facts) % size:
        return None
    replicas, sequences = rollout_devices(facts) // size, prompts * responses
    if sequences % replicas == 0:
        return None
    return Problem(
        f"{prompts} prompts x {responses} responses = {sequences} sequences do not divide by "
        f"{replicas} replicas, so some of them run out of work earlier",
        severity="warning",
    )


CHECKS: Final = (
    Check("overrides", overrides_are_known),
    Check("sync cycle", train_batch_is_whole_cycle),
    Check("train batch", train_batch_holds_mini_batch),
    Check("mini-batch by ranks", mini_batch_divides_by_ranks),
    Check("mini-batch by micro-batches", mini_batch_divides_by_micro_batches),
    Check("micro-batches", micro_batches_are_sized),
    Check("parallel groups", ranks_divide_devices),
    Check("replicas", replicas_fill_the_pool),
    Check("batch by replicas", batch_divides_by_replicas),
)
