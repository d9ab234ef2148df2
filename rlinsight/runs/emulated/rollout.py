"""The trainer's side of a hybrid replica: weights are copied where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray
from verl.workers.rollout.base import BaseRollout

from rlinsight.runs.emulated.host import ACTOR
from rlinsight.runs.emulated.run_time import until
from rlinsight.runs.emulated.setup import setup
from rlinsight.trace.run_clock import CLOCK


class EmulatedRollout(BaseRollout):  # type: ignore[misc]
    """Speaks for all hybrid replicas, as one training process stands for all devices."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **_: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        self._transfers = setup().cost.transfers

    async def resume(self, tags: Sequence[str]) -> None:
        """Take memory back; verl asks for weights and KV cache one after the other."""
        seconds = self._transfers.wake_s / 2
        await self._host().hybrid.remote("wake", seconds, ",".join(tags))

    async def release(self) -> None:
        """Free the memory."""
        await self._host().hybrid.remote("sleep", self._transfers.sleep_s, "all")

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        """Copy the weights to the replicas."""
        del weights
        await until(CLOCK.now_ns() / 1e9 + self._transfers.hybrid_sync_s)
        await self._host().set_version.remote(global_steps)

    @staticmethod
    def _host() -> Any:
        return ray.get_actor(ACTOR)
