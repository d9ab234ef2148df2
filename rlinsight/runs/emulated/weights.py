"""The checkpoint engine of emulated runs: a transfer to the standalone replicas takes time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from rlinsight.runs.emulated.run_time import until
from rlinsight.runs.emulated.setup import setup
from rlinsight.trace.run_clock import CLOCK

BACKEND: Final = "rlinsight_emulated"


@CheckpointEngineRegistry.register(BACKEND)
class EmulatedCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """Moves no bytes."""

    def __init__(self, bucket_size: int, is_master: bool = False, **_: Any) -> None:
        del bucket_size, is_master
        self._sync_s = setup().cost.transfers.sync_s
        self._prepared_ns = CLOCK.now_ns()

    def prepare(self) -> dict[str, Any]:
        """A transfer begins: from here on its time counts."""
        self._prepared_ns = CLOCK.now_ns()
        return {}

    @classmethod
    def build_topology(
        cls, trainer_world_size: int, rollout_world_size: int, _: Any
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the arguments of `init_process_group` on both sides."""
        return (
            {"rank": list(range(trainer_world_size))},
            {"rank": list(range(rollout_world_size))},
        )

    def init_process_group(self, **_: Any) -> None:
        """There is no group."""

    def finalize(self) -> None:
        """There is nothing to end."""

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> dict[str, Any]:
        """Send: be busy until the transfer would be done."""
        del weights, global_steps
        await until(self._prepared_ns / 1e9 + self._sync_s)
        return {}

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, Any]]:
        """Receive nothing; the host receives for the replicas."""
        del global_steps
        nothing: tuple[str, Any]
        for nothing in ():
            yield nothing
