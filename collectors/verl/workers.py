"""The training ranks: what each rank does, in its own process and on its own lane.

Micro-batches are read where verl cuts them. Memory is what the device's allocator reports;
its peak counters are never reset, because verl logs them, so a peak is that of the process
so far, and `memory_peak_rose` says whether it was reached in this call.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinsight.collectors.verl import topology
from rlinsight.collectors.verl.hooks import FULLY_ASYNC, SEPARATE_ASYNC, Call, Hook
from rlinsight.trace.intervals import OpenSpan

_WORKERS = "verl.workers.engine_workers"


@dataclass
class _Job:
    """One call of a rank's method while it runs."""

    span: OpenSpan
    lane: str
    peak_bytes: int | None
    micro_tokens: list[int] = field(default_factory=list)
    sequences: int = 0


@dataclass
class _Rank:
    """What the hooks of this process know of its rank."""

    lane: str | None = None
    version: int | None = None
    jobs: list[_Job] = field(default_factory=list)


_rank = _Rank()


def _created(call: Call) -> None:
    """The worker exists: declare its lane and device. A critic of its own gets its own lane."""
    if call.error is not None or _rank.lane is not None:
        return
    role = getattr(call.obj, "role", "critic")
    part = "" if "actor" in role or "rollout" in role else f"{role}/"
    _rank.lane = f"trainer/{part}rank{call.obj.rank}"
    topology.declare_rank(call.rec, _rank.lane, call.obj.rank)


def _created_alone(call: Call) -> None:
    # An actor's worker creates one of these for itself; only a critic comes without one.
    if call.error is None and _is_critic(call.obj):
        _created(call)


def _is_critic(worker: Any) -> bool:
    return getattr(worker.config, "model_type", None) == "value_model"


def _job(activity: str) -> Callable[[Call], None]:
    def enter(call: Call) -> None:
        _begin(call, activity, {})

    return enter


def _begin(call: Call, activity: str, attrs: dict[str, object], version: int | None = None) -> None:
    lane = _rank.lane or call.rec.lane
    span = call.rec.begin(
        activity,
        start_ns=call.start_ns,
        lane=lane,
        param_version=_rank.version if version is None else version,
        attrs=attrs,
    )
    call.state = _Job(span, lane, _peak_bytes())
    _rank.jobs.append(call.state)


def _end(call: Call) -> None:
    job: _Job | None = call.state
    if job is None:
        return
    _rank.jobs.remove(job)
    attrs = {**_micro_batch_attrs(job), **_memory_attrs(job)}
    if call.error is not None:
        attrs["error"] = type(call.error).__name__
    job.span.end(end_ns=call.end_ns, attrs=attrs)


def _end_update(call: Call) -> None:
    _end(call)
    job: _Job | None = call.state
    if job is None or call.error is not None:
        return
    values = {
        "micro_batch_tokens_max": max(job.micro_tokens, default=None),
        "device_memory_allocated_bytes": _allocator("memory_allocated"),
        "device_memory_peak_bytes": _peak_bytes(),
        "device_memory_reserved_peak_bytes": _allocator("max_memory_reserved"),
        "host_memory_peak_bytes": _host_peak_bytes(),
    }
    for name, value in values.items():
        if value is not None:
            call.rec.counter(name, value, lane=job.lane, ts_ns=call.end_ns)


def _log_prob_enter(call: Call) -> None:
    # With LoRA the reference policy is the actor without its adapter.
    bare = _setting(call.arg(0, "data"), "no_lora_adapter")
    _begin(call, "ref_log_prob" if bare else "old_log_prob", {})


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
            _begin(call, activity, {})

    return enter


def _weights_enter(call: Call) -> None:
    version = call.arg(0, "global_steps")
    _begin(call, "weight_sync", {"backend": call.arg(1, "mode", "auto")}, version)


def _weights_exit(call: Call) -> None:
    _end(call)
    version = call.arg(0, "global_steps")
    if call.error is None and version is not None:
        _rank.version = int(version)


def _micro_batches_exit(call: Call) -> None:
    if call.error is not None or not _rank.jobs:
        return
    job = _rank.jobs[-1]
    for micro_batch in call.result[0]:
        job.sequences += len(micro_batch)
        tokens = token_count(micro_batch)
        if tokens is not None:
            job.micro_tokens.append(tokens)


def token_count(micro_batch: Any) -> int | None:
    """Return the tokens of a micro-batch without padding, None where that is not known.

    Read from shapes and from host tensors only: a hook must not make the device wait.
    """
    if "input_ids" in micro_batch.keys():  # noqa: SIM118 - a TensorDict has no `in`
        input_ids = micro_batch["input_ids"]
        if getattr(input_ids, "is_nested", False):
            return int(input_ids.values().shape[0])
    if "attention_mask" in micro_batch.keys():  # noqa: SIM118
        mask = micro_batch["attention_mask"]
        if mask.device.type == "cpu" and not mask.is_nested:
            return int(mask.sum())
    return None


def _micro_batch_attrs(job: _Job) -> dict[str, object]:
    tokens: Sequence[int] = job.micro_tokens
    if not tokens:
        return {}
    return {
        "sequences": job.sequences,
        "micro_batches": len(tokens),
        "micro_batch_tokens_min": min(tokens),
        "micro_batch_tokens_mean": sum(tokens) / len(tokens),
        "micro_batch_tokens_max": max(tokens),
        "tokens": sum(tokens),
    }


def _memory_attrs(job: _Job) -> dict[str, object]:
    peak = _peak_bytes()
    if peak is None or job.peak_bytes is None:
        return {}
    return {"memory_peak_bytes": peak, "memory_peak_rose": peak > job.peak_bytes}


def _peak_bytes() -> int | None:
    return _allocator("max_memory_allocated")


def _allocator(name: str) -> int | None:
    """Return a figure of the accelerator's allocator in bytes, None without accelerator."""
    device = sys.modules.get("verl.utils.device")
    if device is None or device.get_device_name() not in ("cuda", "npu"):
        return None
    return int(getattr(device.get_torch_device(), name)())


def _host_peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _rank_hook(name: str, target: str, activity: str, records: str) -> Hook:
    return Hook(
        name=f"workers.{name}",
        module=_WORKERS,
        target=target,
        records=records,
        enter=_job(activity),
        exit=_end,
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
        exit=_end,
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
        exit=_end,
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
            exit=_end,
            modes=SEPARATE_ASYNC | FULLY_ASYNC,
        )
        for method in ("save_model_to_cpu", "restore_model_from_cpu")
    ),
)
