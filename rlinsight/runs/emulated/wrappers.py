"""The wrappers that `patches` puts around verl's functions.

A wrapper may be pickled together with a class that Ray exports by value, so it imports what it
needs when it is called.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


# -- one process for all devices -----------------------------------------------------------


def one_process(original: Function) -> Function:
    """Make a resource pool of one process, whatever it is asked for."""

    def init(pool: Any, process_on_nodes: Any = None, *args: Any, **kwargs: Any) -> None:
        original(pool, [1] if process_on_nodes else process_on_nodes, *args, **kwargs)

    return init


class WholeGroup:
    """A worker group that counts as many workers as there are trainer devices."""

    def __init__(self, group: Any, devices: int) -> None:
        self.workers, self.world_size = group.workers, devices


def all_hybrid_replicas(original: Function) -> Function:
    """Let verl count hybrid replicas by the trainer's devices, not by its one process."""

    async def initialize(manager: Any, *args: Any, **kwargs: Any) -> None:
        from rlinsight.runs.emulated.setup import setup
        from rlinsight.runs.emulated.wrappers import WholeGroup

        group = manager.worker_group
        if group is not None:
            manager.worker_group = WholeGroup(group, setup().trainer.devices)
        try:
            await original(manager, *args, **kwargs)
        finally:
            if group is not None:
                manager.worker_group = group

    return initialize


def replica_in_one_process(original: Function) -> Function:
    """Let the one training process stand for a replica of any size."""

    def init(worker: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        from omegaconf import open_dict

        with open_dict(config):
            for kind in ("tensor_model", "data", "pipeline_model"):
                config.rollout[f"{kind}_parallel_size"] = 1
        original(worker, config, *args, **kwargs)

    return init


def nothing_to_save(_: Function) -> Function:
    """Answer for the strategy `emulated`: there are no weights to put aside."""

    def handlers(worker: Any) -> tuple[Function, Function]:
        del worker
        return (lambda _module: None, lambda _module, _saved: None)

    return handlers


# -- requests ------------------------------------------------------------------------------


def named_request(original: Function) -> Function:
    """Say with each request whose it is, so that its length does not depend on the run.

    The name of a prompt is verl's own where that is the same in every run, else the step and
    place at which it was drawn.
    """

    async def run(
        worker: Any, sampling_params: dict[str, Any], trajectory: Any, **kwargs: Any
    ) -> Any:
        from rlinsight.runs.emulated.handles import INDEX, PROMPT, SENT
        from rlinsight.trace.run_clock import CLOCK

        uid = str(kwargs.get("uid", ""))
        kind = "validate" if trajectory["validate"] else "train"
        drawn = f"{kind}/{trajectory['step']}/{trajectory['sample_index']}"
        named = {
            PROMPT: uid if uid.startswith("uid_sample") else drawn,
            INDEX: kwargs.get("session_id", trajectory["rollout_n"]),
            SENT: CLOCK.now_ns(),
        }
        return await original(worker, {**sampling_params, **named}, trajectory, **kwargs)

    return run


def reward_at_once(original: Function) -> Function:
    """Give each response a reward where it is generated: a number drawn from its name."""

    async def run(loop: Any, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        import hashlib

        from rlinsight.runs.emulated.handles import INDEX, PROMPT

        output = await original(loop, sampling_params, **kwargs)
        name = f"{sampling_params.get(PROMPT)}/{sampling_params.get(INDEX)}"
        output.reward_score = hashlib.blake2b(name.encode()).digest()[0] / 255.0
        output.extra_fields.setdefault("reward_extra_info", {})
        return output

    return run


def direct_padding(original: Function) -> Function:
    """Pad without the tokenizer, whose own way costs milliseconds for thousands of tokens."""

    def pad(
        worker: Any,
        tokens: Any,
        *,
        max_length: int,
        padding_side: str,
        return_attention_mask: bool,
    ) -> Any:
        import torch

        if len(tokens) > max_length:
            return original(
                worker,
                tokens,
                max_length=max_length,
                padding_side=padding_side,
                return_attention_mask=return_attention_mask,
            )
        fill = worker.tokenizer.pad_token_id or 0
        where = slice(0, len(tokens))
        if padding_side == "left":
            where = slice(max_length - len(tokens), max_length)
        ids = torch.full((1, max_length), fill, dtype=torch.long)
        ids[0, where] = torch.tensor(tokens, dtype=torch.long)
        result = {"input_ids": ids}
        if return_attention_mask:
            result["attention_mask"] = torch.zeros((1, max_length), dtype=torch.long)
            result["attention_mask"][0, where] = 1
        return result

    return pad


class DirectHydra:
    """Stands in for the module `hydra` where verl makes an agent loop for each request.

    `hydra.utils.instantiate` resolves the whole configuration each time: 4 ms of CPU.
    """

    class utils:  # noqa: N801 - it is called as `hydra.utils.instantiate`
        """The one part that is used."""

        @staticmethod
        def instantiate(config: Any, **given: Any) -> Any:
            """Return an object of the class that `config` names."""
            import importlib

            module, _, name = config["_target_"].rpartition(".")
            made = getattr(importlib.import_module(module), name)
            rest = {key: value for key, value in config.items() if key != "_target_"}
            return made(**rest, **given)

    def __reduce__(self) -> tuple[Any, ...]:
        return (DirectHydra, ())


# -- verl's own waits ----------------------------------------------------------------------


class ScaledAsyncio:
    """The module `asyncio` with a `sleep` on the run's clock."""

    def __getattr__(self, name: str) -> Any:
        import asyncio

        return getattr(asyncio, name)

    def sleep(self, delay: float, result: Any = None) -> Any:
        """Sleep for `delay` emulated seconds."""
        import asyncio

        from rlinsight.trace.run_clock import CLOCK

        return asyncio.sleep(delay * CLOCK.scale, result)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ScaledAsyncio, ())


def scaled_poll(original: Function) -> Function:
    """Poll on the run's clock."""

    def init(buffer: Any, *args: Any, **kwargs: Any) -> None:
        from rlinsight.trace.run_clock import CLOCK

        original(buffer, *args, **kwargs)
        buffer.poll_interval *= CLOCK.scale

    return init


# -- when an update could begin ------------------------------------------------------------


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
        from rlinsight.runs.emulated.wrappers import flush_all

        result = await original(trainer, *args, **kwargs)
        flush_all()
        return result

    def fit_now(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        from rlinsight.runs.emulated.wrappers import flush_all

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
