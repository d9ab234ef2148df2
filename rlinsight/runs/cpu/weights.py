"""verl's checkpoint engine `rlinsight_tcp`: trainer to rollouts without NCCL.

Rank 0 of the trainer listens on its node's address, every rollout worker connects to it, and both
prove that they know the run's secret. Loaded by verl through
`rollout.checkpoint_engine.custom_backend_module`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

from rlinsight.runs.cpu.launch import WEIGHT_ENGINE
from rlinsight.runs.cpu.secret import run_secret
from rlinsight.runs.cpu.transport import link
from rlinsight.runs.cpu.transport.admission import Admission
from rlinsight.runs.cpu.transport.errors import WeightSyncError
from rlinsight.runs.cpu.transport.hub import Hub
from rlinsight.runs.cpu.transport.tensors import Packer, Unpacker
from rlinsight.runs.cpu.transport.wire import Channel, Deadline, Frame, Kind


@CheckpointEngineRegistry.register(WEIGHT_ENGINE)
class TcpCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """One end of the weight sync; a trainer rank or a rollout worker, as verl assigns it.

    `connect_timeout_s` bounds how long both ends wait for each other, `timeout_s` how long one
    bucket may take to be sent, loaded and acknowledged.
    """

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        *,
        host: str | None = None,
        connect_timeout_s: float = 60.0,
        timeout_s: float = 300.0,
    ) -> None:
        self._bucket_bytes = bucket_size
        self._is_master = is_master
        self._secret = run_secret()
        self._host = host
        self._connect_timeout_s, self._timeout_s = connect_timeout_s, timeout_s
        self._admission: Admission | None = None
        self._hub: Hub | None = None
        self._channel: Channel | None = None

    def prepare(self) -> dict[str, Any] | None:
        """Return where receivers find this rank, or None when it is not the one that sends."""
        self.finalize()
        if not self._is_master:
            return None
        self._admission = Admission(self._host or _node_address(), self._secret)
        return {
            "host": self._admission.host,
            "port": self._admission.port,
            "session": self._admission.session.hex(),
        }

    @classmethod
    def build_topology(
        cls,
        actor_wg_world_size: int,
        rollout_world_size: int,
        metadata: list[dict[str, Any] | None],
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return the arguments of `init_process_group`, per trainer rank and per receiver."""
        offers = [offer for offer in metadata if offer]
        if len(offers) != 1:
            raise WeightSyncError(f"expected one trainer rank that sends, found {len(offers)}")
        return (
            _arguments("trainer", actor_wg_world_size, rollout_world_size, offers[0]),
            _arguments("receiver", rollout_world_size, rollout_world_size, offers[0]),
        )

    def init_process_group(
        self, *, role: str, rank: int, receivers: int, host: str, port: int, session: str
    ) -> None:
        """Connect: a receiver to the trainer, the sending rank waits for all receivers."""
        if role == "receiver":
            self._channel = link.connect(
                host, port, secret=self._secret, session=bytes.fromhex(session), rank=rank,
                timeout_s=self._connect_timeout_s,
            )  # fmt: skip
        elif self._admission is not None:
            channels = self._admission.take(receivers, self._connect_timeout_s)
            self._hub = Hub(channels, timeout_s=self._timeout_s)

    def finalize(self) -> None:
        """Close every connection of the last sync. Idempotent."""
        for end in (self._hub, self._admission, self._channel):
            if end is not None:
                end.close()
        self._hub = self._admission = self._channel = None

    async def send_weights(
        self,
        weights: Any,
        global_steps: int | None = None,  # noqa: ARG002 - verl passes it
    ) -> dict[str, float]:
        """Send all weights; return how many tensors and bytes went out, and the seconds it took.

        Every trainer rank goes through `weights`, because gathering a sharded tensor takes all of
        them; only one sends.
        """
        if not self._is_master:
            async for _ in ensure_async_iterator(weights):
                pass
            return {}
        if self._hub is None:
            raise WeightSyncError("weights were to be sent before receivers were connected")
        start = time.monotonic()
        try:
            totals = await _send(self._hub, weights, Packer(self._bucket_bytes))
        except BaseException:
            self.finalize()
            raise
        figures = {f"checkpoint_engine/{name}": float(count) for name, count in totals.items()}
        return {**figures, "checkpoint_engine/send_s": time.monotonic() - start}

    async def receive_weights(
        self,
        global_steps: int | None = None,  # noqa: ARG002 - verl passes it
    ) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Yield every weight; a bucket is acknowledged when all of it has been used."""
        if self._channel is None:
            raise WeightSyncError("weights were to be received before a trainer was connected")
        unpacker = Unpacker()
        try:
            while (frame := await self._next(self._channel)).kind is Kind.TENSORS:
                for name, tensor in unpacker.take(frame.text, frame.payload):
                    yield name, tensor
                await self._acknowledge(self._channel)
            unpacker.finish(frame.text)
            await self._acknowledge(self._channel)
        finally:
            self.finalize()

    async def _next(self, channel: Channel) -> Frame:
        deadline = Deadline(self._timeout_s)
        try:
            return await asyncio.to_thread(
                channel.receive, max_payload_bytes=self._bucket_bytes, deadline=deadline
            )
        except TimeoutError:
            raise WeightSyncError(f"no weights came within {self._timeout_s:g} s") from None

    async def _acknowledge(self, channel: Channel) -> None:
        await asyncio.to_thread(channel.send, Kind.ACK, deadline=Deadline(self._timeout_s))


async def _send(hub: Hub, weights: Any, packer: Packer) -> dict[str, int]:
    totals = {"tensors": 0, "bytes": 0}
    async for name, tensor in ensure_async_iterator(weights):
        totals["tensors"] += 1
        totals["bytes"] += tensor.nbytes
        for bucket in packer.add(name, tensor):
            await asyncio.to_thread(hub.send, Kind.TENSORS, bucket.entries, bucket.payload)
    last = packer.flush()
    if last.entries:
        await asyncio.to_thread(hub.send, Kind.TENSORS, last.entries, last.payload)
    await asyncio.to_thread(hub.send, Kind.END, totals)
    return totals


def _arguments(role: str, world_size: int, receivers: int, offer: dict[str, Any]) -> dict[str, Any]:
    same = {"role": role, "receivers": receivers, **offer}
    return {
        "rank": list(range(world_size)),
        **{name: [value] * world_size for name, value in same.items()},
    }


def _node_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address()).strip("[]")
