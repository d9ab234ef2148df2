"""verl's own message queue, and groups as its rollouter puts them there."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

from rlinsight.collectors.verl import wrap
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.cloudpickle as cloudpickle
    import verl.experimental.fully_async_policy.message_queue as queue_module
    from verl.experimental.fully_async_policy.detach_utils import RolloutSample


def config(n: int = 2) -> SimpleNamespace:
    return SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(n=n)))


def group(number: int, payload: object = b"\x00" * 100_000) -> bytes:
    """A pickled group as the rollouter sends it, with something big in front of its id."""
    status = {"count/total_generated_samples": number, "static/max_queue_size": 4}
    sample = RolloutSample(payload, f"sample_0_{number}", epoch=0, rollout_status=status)
    return cloudpickle.dumps(sample)


def make_queue(size: int):
    return wrap.actor_class(queue_module.MessageQueue)(config(), size)
