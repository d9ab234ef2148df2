"""Wrappers that let one training process stand for all trainer devices.

A wrapper may be pickled together with a class that Ray exports by value, so it imports what it
needs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


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
        from rlinsight.runs.emulated.one_process import WholeGroup
        from rlinsight.runs.emulated.setup import setup

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
