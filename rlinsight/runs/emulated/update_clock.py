"""Wrappers that tell an update when it could begin, and a trace when training is over.

A wrapper may be pickled together with a class that Ray exports by value, so it imports what it
needs when it is called.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def sample_fetched(original: Function) -> Function:
    """Note when the trainer had its sample."""

    async def get_sample(client: Any) -> Any:
        from rlinsight.runs.emulated.batch_clock import BATCH_CLOCK

        began = time.monotonic()
        sample = await original(client)
        BATCH_CLOCK.waited(time.monotonic() - began)
        return sample

    return get_sample


def batch_fetched(original: Function) -> Function:
    """Note when the trainer had its batch; one that had to be polled for was not there."""

    def sample(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        from rlinsight.runs.emulated.batch_clock import BATCH_CLOCK

        began = time.monotonic()
        result = original(buffer, *args, **kwargs)
        BATCH_CLOCK.waited(time.monotonic() - began, buffer.poll_interval)
        return result

    return sample


def stamped_batch(original: Function) -> Function:
    """Send along when the batch was there."""

    def update(trainer: Any, batch: Any) -> Any:
        from rlinsight.runs.emulated.batch_clock import BATCH_CLOCK, READY

        batch.meta_info[READY] = BATCH_CLOCK.ready_ns
        return original(trainer, batch)

    return update


def stamped_keys(original: Function) -> Function:
    """Send along when the batch was there, with the keys under which it lies."""

    def update(trainer: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        from rlinsight.runs.emulated.batch_clock import BATCH_CLOCK, READY

        batch.extra_info[READY] = BATCH_CLOCK.ready_ns
        return original(trainer, batch, metrics=metrics)

    return update


def flushed(original: Function) -> Function:
    """Write what was recorded when training is over: what follows takes no emulated device long.

    Ray ends its workers by force, and on a fast clock much has happened since the last flush.
    """

    async def fit(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        from rlinsight.runs.emulated.update_clock import flush_all

        result = await original(trainer, *args, **kwargs)
        flush_all()
        return result

    def fit_now(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        from rlinsight.runs.emulated.update_clock import flush_all

        result = original(trainer, *args, **kwargs)
        flush_all()
        return result

    return fit if inspect.iscoroutinefunction(original) else fit_now


def flush_all() -> None:
    """Write what this process and the emulated replicas have recorded."""
    import ray

    from rlinsight.runs.emulated.host import ACTOR
    from rlinsight.trace.recorder import current

    writer = current()
    if writer is not None:
        writer.flush()
        ray.get(ray.get_actor(ACTOR).flush.remote())


def occupying(original: Function) -> Function:
    """Note when something that keeps the trainer's devices has ended."""
    if inspect.iscoroutinefunction(original):

        async def call(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            from rlinsight.runs.emulated.batch_clock import BATCH_CLOCK

            began = time.monotonic()
            result = await original(trainer, *args, **kwargs)
            BATCH_CLOCK.waited(time.monotonic() - began)
            return result

        return call

    def call_now(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        from rlinsight.runs.emulated.batch_clock import BATCH_CLOCK

        began = time.monotonic()
        result = original(trainer, *args, **kwargs)
        BATCH_CLOCK.waited(time.monotonic() - began)
        return result

    return call_now
