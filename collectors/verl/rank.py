"""What a training rank does at the moment: the call that runs, its micro-batches, its memory."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinsight.collectors.verl.hooks import Call
from rlinsight.trace.intervals import OpenSpan
from rlinsight.trace.run_clock import CLOCK, EmulatedClock


@dataclass
class Job:
    """One call of a rank's method while it runs."""

    span: OpenSpan
    lane: str
    peak_bytes: int | None
    micro_tokens: list[int] = field(default_factory=list)
    sequences: int = 0


@dataclass
class Rank:
    """What the hooks of this process know of its rank.

    `version` is the parameter version it sent last, `jobs` are the calls that run, innermost
    last, and `ended_ns` is when the last of them ended, 0 before the first.
    """

    lane: str | None = None
    version: int | None = None
    jobs: list[Job] = field(default_factory=list)
    ended_ns: int = 0


rank = Rank()


def begin_job(
    call: Call,
    activity: str,
    attrs: Mapping[str, object] | None = None,
    version: int | None = None,
) -> None:
    """Open a span of this rank that `end_job` closes; a crash leaves it open."""
    lane = rank.lane or call.rec.lane
    span = call.rec.begin(
        activity,
        start_ns=call.start_ns,
        lane=lane,
        param_version=rank.version if version is None else version,
        attrs=attrs,
    )
    # An emulated device settles when it began while it works, and a beginning that was written
    # cannot be changed.
    if isinstance(CLOCK, EmulatedClock):
        call.rec.spans.shown.add(span)
    call.state = Job(span, lane, peak_bytes())
    rank.jobs.append(call.state)


def end_job(call: Call) -> None:
    """Close what `begin_job` opened, with what is known of its micro-batches and memory."""
    job: Job | None = call.state
    if job is None:
        return
    rank.jobs.remove(job)
    rank.ended_ns = call.end_ns or rank.ended_ns
    attrs = {**_micro_batch_attrs(job), **_memory_attrs(job)}
    if call.error is not None:
        attrs["error"] = type(call.error).__name__
    job.span.end(end_ns=call.end_ns, attrs=attrs)


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


def _micro_batch_attrs(job: Job) -> dict[str, object]:
    tokens = job.micro_tokens
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


def _memory_attrs(job: Job) -> dict[str, object]:
    peak = peak_bytes()
    if peak is None or job.peak_bytes is None:
        return {}
    return {"memory_peak_bytes": peak, "memory_peak_rose": peak > job.peak_bytes}


def peak_bytes() -> int | None:
    """Return the most memory in use on the device since the process started, in bytes."""
    return allocator_bytes("max_memory_allocated")


def allocator_bytes(name: str) -> int | None:
    """Return a figure of the accelerator's allocator in bytes, None without accelerator."""
    device = sys.modules.get("verl.utils.device")
    if device is None or device.get_device_name() not in ("cuda", "npu"):
        return None
    return int(getattr(device.get_torch_device(), name)())


def host_peak_bytes() -> int:
    """Return the most host memory this process has held so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
