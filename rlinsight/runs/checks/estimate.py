"""How large a trace will be, before it exists.

Sizes per row are those measured on recordings of the four modes, compressed; the estimate
serves to refuse a disk that is far too small, so it errs on the large side.
"""

from __future__ import annotations

from typing import Final

from rlinsight.runs.checks.facts import Facts
from rlinsight.runs.config import RunConfig
from rlinsight.runs.kernel_window import estimated_bytes

_BYTES_PER_SPAN: Final = 32
_BYTES_PER_SEQUENCE: Final = 200  # one request or two, one sample row, its agent-loop spans
_BYTES_PER_COUNTER: Final = 16
_SPANS_PER_RANK_AND_STEP: Final = 60
_METRICS_PER_STEP: Final = 200
_COUNTERS_PER_DEVICE: Final = 8

#: Assumed where the configuration does not say.
_STEPS: Final = 1000
_STEP_S: Final = 300.0
_SEQUENCES_PER_STEP: Final = 4096


def trace_bytes(facts: Facts) -> int:
    """Return the expected size in bytes of the trace of the whole run."""
    steps = facts.number("trainer.total_training_steps") or _STEPS
    if isinstance(facts.config, RunConfig):
        steps = facts.config.steps or steps
        devices = facts.config.resources.total_devices
    else:
        devices = 8
    spans = devices * _SPANS_PER_RANK_AND_STEP + _METRICS_PER_STEP
    per_step = spans * _BYTES_PER_SPAN + _sequences(facts) * _BYTES_PER_SEQUENCE
    samples = steps * _STEP_S / facts.config.collectors.sample_interval_s
    counters = samples * devices * _COUNTERS_PER_DEVICE * _BYTES_PER_COUNTER
    return int(steps * per_step + counters)


def kernel_bytes(facts: Facts) -> int:
    """Return the expected size in bytes of the profiles of kernel windows, 0 without any."""
    return 0 if facts.wrapped else estimated_bytes(facts.managed, facts.number)


def _sequences(facts: Facts) -> int:
    """Return generated sequences per step."""
    responses = facts.number("actor_rollout_ref.rollout.n")
    prompts = facts.number("data.train_batch_size")
    if not prompts:
        mini = facts.number("actor_rollout_ref.actor.ppo_mini_batch_size")
        every = facts.number("async_training.trigger_parameter_sync_step")
        prompts = mini * every if mini and every else None
    return prompts * responses if prompts and responses else _SEQUENCES_PER_STEP
