"""The training ranks: what each rank does, in its own process and on its own lane.

Micro-batches are read where verl cuts them. Memory is what the device's allocator reports;
its peak counters are never reset, because verl logs them, so a peak is that of the process
so far, and `memory_peak_rose` says whether it was reached in this call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlinsight.collectors.verl import topology
from rlinsight.collectors.verl.hooks import FULLY_ASYNC, SEPARATE_ASYNC, Call, Hook
from rlinsight.collectors.verl.rank import (
    Job,
    allocator_bytes,
    begin_job,
    end_job,
    host_peak_bytes,
    peak_bytes,
    rank,
    token_count,
)

_WORKERS = "verl.workers.engine_workers"


def _created(call: Call) -> None:
    """The worker exists: declare its lane and device. A critic of its own gets its own lane."""
    if call.error is not None or rank.lane is not None:
        return
    role = getattr(call.obj, "role", "critic")
    part = "" if "actor" in role or "rollout" in role else f"{role}/"
    rank.lane = f"trainer/{part}rank{call.obj.rank}"
    topology.declare_rank(call.rec, rank.lane, call.obj.rank)


def _created_alone(call: Call) -> None:
    # An actor's worker creates one of these for itself; only a critic comes without one.
    if call.error is None and _is_critic(call.obj):
        _created(call)


def _is_critic(worker: Any) -> bool:
    return getattr(worker.config, "model_type", None) == "value_model"


def _job(activity: str) -> Callable[[Call], None]:
    def enter(call: Call) -> None:
        begin_job(call, activity)

    return enter


def _end_update(call: Call) -> None:
    end_job(call)
    job: Job | None = call.state
    if job is None or call.error is not None:
        return
    values = {
        "micro_batch_tokens_max": max(job.micro_tokens, default=None),
        "device_memory_allocated_bytes": allocator_bytes("memory_allocated"),
        "device_memory_peak_bytes": peak_bytes(),
        "device_memory_reserved_peak_bytes": allocator_bytes("max_memory_reserved"),
        "host_memory_peak_bytes": host_peak_bytes(),
    }
    for name, value in values.items():
        if value is not None:
            call.rec.counter(name, value, lane=job.lane, ts_ns=call.end_ns)


def _log_prob_enter(call: Call) -> None:
    # With LoRA the reference policy is the actor without its adapter.
    bare = _setting(call.arg(0, "data"), "no_lora_adapter")
    begin_job(call, "ref_log_prob" if bare else "old_log_prob")


def _setting(data: Any, key: str) -> Any:
    """Return a setting sent along with a batch, be it the batch or its TransferQueue handle."""
    extra = getattr(data, "extra_info", None)
    if extra is not None:
        return extra.get(key)
    return data[key] if key in data.keys() else None  # noqa: SIM118 - a TensorDict has no `in`


def _critic_only(activity: str) -> Callable[[Call], None]:
    """Skip the worker inside an actor's worker, whose calls are recorded there."""

    def enter(call: Call) -> None:
        if _is_critic(call.obj):
            begin_job(call, activity)

    return enter


def _weights_enter(call: Call) -> None:
    version = call.arg(0, "global_steps")
    begin_job(call, "weight_sync", {"backend": call.arg(1, "mode", "auto")}, version)


def _weights_exit(call: Call) -> None:
    end_job(call)
    version = call.arg(0, "global_steps")
    if call.error is None and version is not None:
        rank.version = int(version)


def _micro_batches_exit(call: Call) -> None:
    if call.error is not None or not rank.jobs:
        return
    job = rank.jobs[-1]
    for micro_batch in call.result[0]:
        job.sequences += len(micro_batch)
        tokens = token_count(micro_batch)
        if tokens is not None:
            job.micro_tokens.append(tokens)


def _rank_hook(name: str, target: str, activity: str, records: str) -> Hook:
    return Hook(
        name=f"workers.{name}",
        module=_WORKERS,
        target=target,
        records=records,
        enter=_job(activity),
        exit=end_job,
    )


HOOKS = (
    Hook(
        name="workers.created",
        module=_WORKERS,
        target="ActorRolloutRefWorker.__init__",
        records="a rank's lane, its device and placement",
        exit=_created,
    ),
    Hook(
        name="workers.critic_created",
        module=_WORKERS,
        target="TrainingWorker.__init__",
        records="a critic rank's lane, its device and placement",
        exit=_created_alone,
    ),
    _rank_hook(
        "init_model", "ActorRolloutRefWorker.init_model", "init", "building the models on a rank"
    ),
    Hook(
        name="workers.update_actor",
        module=_WORKERS,
        target="ActorRolloutRefWorker.update_actor",
        records="the actor update of a rank, its micro-batches' tokens and its memory peak",
        enter=_job("update_actor"),
        exit=_end_update,
    ),
    Hook(
        name="workers.log_prob",
        module=_WORKERS,
        target="ActorRolloutRefWorker.compute_log_prob",
        records="old log-probabilities on a rank, or the reference's under LoRA",
        enter=_log_prob_enter,
        exit=end_job,
        needs=("data",),
    ),
    _rank_hook(
        "ref_log_prob",
        "ActorRolloutRefWorker.compute_ref_log_prob",
        "ref_log_prob",
        "reference log-probabilities on a rank",
    ),
    Hook(
        name="workers.update_critic",
        module=_WORKERS,
        target="TrainingWorker.train_mini_batch",
        records="the critic update of a rank, its micro-batches' tokens and its memory peak",
        enter=_critic_only("update_critic"),
        exit=_end_update,
    ),
    Hook(
        name="workers.values",
        module=_WORKERS,
        target="TrainingWorker.infer_batch",
        records="the critic's values on a rank",
        enter=_critic_only("values"),
        exit=end_job,
    ),
    Hook(
        name="workers.weight_sync",
        module=_WORKERS,
        target="ActorRolloutRefWorker.update_weights",
        records="a rank's part in a weight sync, with the version sent",
        enter=_weights_enter,
        exit=_weights_exit,
        needs=("global_steps", "mode"),
    ),
    _rank_hook(
        "checkpoint",
        "ActorRolloutRefWorker.save_checkpoint",
        "checkpoint",
        "a rank's part in a checkpoint",
    ),
    Hook(
        name="workers.micro_batches",
        module="verl.workers.engine.utils",
        target="prepare_micro_batches",
        records="tokens of each micro-batch, summed up on the span of the update",
        exit=_micro_batches_exit,
    ),
    *(
        Hook(
            name=f"workers.{method}",
            module="verl.experimental.separation.engine_workers",
            target=f"DetachActorWorker.{method}",
            records=f"{method} on a rank, part of recomputing old log-probabilities",
            enter=_job(f"other:{method}"),
            exit=end_job,
            modes=SEPARATE_ASYNC | FULLY_ASYNC,
        )
        for method in ("save_model_to_cpu", "restore_model_from_cpu")
    ),
)
