"""Rollout replicas of the emulated engine (`rollout.name: emulated`)."""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.replica import RolloutMode, RolloutReplica

from rlinsight.runs.emulated.handles import ServerHandle, WorkerHandle, host, together
from rlinsight.runs.emulated.host import Replicated
from rlinsight.runs.emulated.setup import setup


class EmulatedReplica(RolloutReplica):  # type: ignore[misc]
    """A replica without processes of its own; it is pickled wherever verl sends it."""

    async def init_standalone(self) -> None:
        """Start it on devices of its own, for which nothing is reserved."""
        self.rollout_mode = RolloutMode.STANDALONE
        await self.launch_servers()
        # One of them answers for all in a weight sync, which then costs the same for any number.
        self.workers = [WorkerHandle(self._host)] if self._place == 0 else []

    async def init_hybrid(self, worker_group: Any) -> None:
        """Start it on the trainer's devices, for all of which one process stands."""
        self.rollout_mode = RolloutMode.HYBRID
        self.workers = worker_group.workers[:1]
        await self.launch_servers()

    async def launch_servers(self) -> None:
        """Let the host add the replica."""
        self._host = host()
        what = Replicated(
            rank=self.replica_rank,
            kind=self.rollout_mode.value,
            capacity=self.config.max_num_seqs,
            devices=self.world_size,
            response_length=self.config.response_length,
        )
        self._place = await self._host.add_replica.remote(what)
        handle = ServerHandle(self._host, self.replica_rank)
        self.servers, self._server_handle = [handle], handle
        self._server_address = f"emulated:{self.replica_rank}"

    async def abort_all_requests(self, reject_request: bool = False) -> None:
        """Close the gate and abort what runs."""
        await together(self._host, "abort", self.replica_rank, rejects=reject_request)

    async def resume_generation(self) -> None:
        """Open the gate."""
        await together(self._host, "resume", self.replica_rank)

    async def sleep(self) -> None:
        """Free the memory of weights and KV cache."""
        await self._memory("sleep", "all")

    async def wake_up(self) -> None:
        """Take it back."""
        await self._memory("wake", "all")

    async def _memory(self, activity: str, what: str) -> None:
        if self.rollout_mode == RolloutMode.STANDALONE or not self.config.free_cache_engine:
            return  # as on a real engine: it shares its devices with nobody
        transfers = setup().cost.transfers
        seconds = transfers.sleep_s if activity == "sleep" else transfers.wake_s
        arguments = {"activity": activity, "seconds": seconds, "what": what}
        await together(self._host, "memory", self.replica_rank, **arguments)

    async def clear_kv_cache(self) -> None:
        """There is no prefix cache."""

    async def release_kv_cache(self) -> None:
        """A sync needs no memory."""

    async def resume_kv_cache(self) -> None:
        """A sync needs no memory."""

    async def start_profile(self, **_: Any) -> None:
        """There is nothing to profile."""

    async def stop_profile(self) -> None:
        """There is nothing to profile."""
