"""The process that holds all emulated replicas: one Ray actor, without torch and without verl.

Requests and control calls come over Ray; results leave when the run's clock has reached the
time that the device model gave them. Each replica has verl's admission gate: while it is
closed, a request waits, or is turned away with an empty answer where the replica leaves the
rotation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rlinsight.runs.emulated.cost import Emulated
from rlinsight.runs.emulated.device_model import Event, Job, Replica
from rlinsight.runs.emulated.laws import replica_cost, response_length
from rlinsight.runs.emulated.recording import Row, Rows
from rlinsight.runs.emulated.run_time import now_s, until
from rlinsight.runs.emulated.setup import setup
from rlinsight.runs.emulated.topology import declare_replica
from rlinsight.trace.recorder import current
from rlinsight.trace.run_clock import CLOCK

#: The name under which the actor is found.
ACTOR: Final = "rlinsight_emulated_host"

Answer = tuple[int, str, int | None]


@dataclass(frozen=True)
class Replicated:
    """What a replica is: its number, kind, size and place."""

    rank: int
    kind: str
    capacity: int
    devices: int
    response_length: int


@dataclass(frozen=True)
class Ask:
    """A request: sizes in tokens, whose it is, and when the agent loop began it (run's clock)."""

    engine_id: str
    prompt_tokens: int
    max_tokens: int | None
    prompt: str
    index: str
    sent_ns: int | None = None


class Server:
    """One replica on the event loop of the host: the device model, its gate and its timer."""

    def __init__(self, what: Replicated, model: Emulated) -> None:
        self.what, self._model = what, model
        cost = replica_cost(model.generation, what.devices, what.capacity)
        self._queue = Replica(cost, now=now_s())
        self._rows = Rows(what.rank, what.kind)
        self._open: dict[Job, tuple[Row, asyncio.Future[Answer]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._rejects = False
        self.version: int | None = None

    async def generate(self, ask: Ask) -> Answer:
        """Answer a request once its device would have."""
        row = self._rows.submitted(ask, self.version)
        began_ns = CLOCK.now_ns()
        while not self._gate.is_set():
            if self._rejects:
                self._rows.gate_wait(row, began_ns, "rejected", self.version)
                return self._rows.rejected(row, self.version)
            await self._gate.wait()
            if self._gate.is_set():
                self._rows.gate_wait(row, began_ns, "parked", self.version)
        row.version = self.version
        job = Job(ask.prompt_tokens, self._tokens_needed(ask))
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[job] = (row, answer)
        self._take(self._queue.submit(now_s(), job))
        return await answer

    def _tokens_needed(self, ask: Ask) -> int:
        limit = self.what.response_length
        lengths, seed = self._model.lengths, self._model.seed
        total = response_length(lengths, seed, ask.prompt, ask.index, limit)
        if ask.max_tokens is None:
            return total
        # A resumed request comes with what is left of its budget.
        made = max(0, limit - ask.max_tokens)
        return max(1, min(total - made, ask.max_tokens))

    # -- control -----------------------------------------------------------------------

    def close(self, *, rejects: bool) -> None:
        """Close the gate; what runs goes on until it is aborted."""
        self._rows.paused(self.version, rejects=rejects)
        self._gate.clear()
        self._rejects = rejects

    def abort(self) -> int:
        """Give every request back with the tokens it has."""
        at = now_s()
        events, aborted = self._queue.abort(at)
        self._take(events)
        for job, tokens in aborted:
            self._answer(job, at, tokens, "abort")
        self._rows.counts(at, 0, 0, 0.0)
        self._rows.aborted(self.version, len(aborted), rejects=self._rejects)
        return len(aborted)

    def resume(self) -> None:
        """Open the gate."""
        self._rejects = False
        self._rows.resumed(self.version)
        self._gate.set()

    def set_version(self, version: int | None) -> None:
        """Take note of the weights it now holds."""
        self.version = version
        self._rows.synced(version)

    def span(self, activity: str, start_ns: int, **attrs: str) -> None:
        """Record what the replica has done since `start_ns`."""
        self._rows.span(activity, start_ns, attrs)

    # -- results -----------------------------------------------------------------------

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if event.kind == "first_token" and event.job in self._open:
                self._open[event.job][0].first_token_s = event.at
            elif event.kind == "preempted":
                self._rows.preempted(event.at)
            self._rows.counts(event.at, event.running, event.waiting, self._usage(event))
            if event.kind == "finished":
                self._answer(event.job, event.at, event.job.need, None)
        state = self._queue
        self._rows.counts(state.now, state.running, len(state.waiting), None)
        self._arm()

    def _usage(self, event: Event) -> float:
        return event.kv_tokens / self._queue.cost.kv_tokens

    def _answer(self, job: Job, at: float, tokens: int, finish: str | None) -> None:
        row, answer = self._open.pop(job)
        finish = finish or ("length" if tokens >= row.budget(self.what) else "stop")
        self._rows.ended(row, at, tokens, finish, self.version)
        if not answer.done():
            reason = "aborted" if finish == "abort" else "completed"
            answer.set_result((tokens, reason, self.version))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._queue.next_event()
        delay = None if due is None else max(0.0, due - now_s()) * CLOCK.scale
        loop = asyncio.get_running_loop()
        self._timer = None if delay is None else loop.call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self._take(self._queue.advance(now_s()))


class Host:
    """The actor. A control method takes the ranks it concerns: one call serves all of them."""

    def __init__(self) -> None:
        self._model = setup().cost
        self._servers: dict[int, Server] = {}
        self._prepared_ns = 0

    async def add_replica(self, what: Replicated) -> int:
        """Add a replica; return how many of its kind there were before."""
        place = len(self._of(what.kind))
        self._servers[what.rank] = Server(what, self._model)
        declare_replica(what.rank, what.kind, place, what.devices, what.capacity)
        return place

    async def generate(self, rank: int, ask: Ask) -> Answer:
        """Generate on a replica: tokens, `completed` or `aborted`, version of the weights."""
        return await self._servers[rank].generate(ask)

    async def abort(self, ranks: Sequence[int], *, rejects: bool) -> list[int]:
        """Abort what runs on the replicas; return how much that was.

        As on a real engine, the gate is closed first, and the abort waits at a barrier until
        what had passed the gate has reached the engine.
        """
        barrier_s = CLOCK.now_ns() / 1e9 + self._model.transfers.abort_s
        for rank in ranks:
            self._servers[rank].close(rejects=rejects)
        await until(barrier_s)
        return [self._servers[rank].abort() for rank in ranks]

    async def resume(self, ranks: Sequence[int]) -> None:
        """Let the replicas generate."""
        for rank in ranks:
            self._servers[rank].resume()

    async def prepare(self) -> None:
        """A weight sync begins."""
        self._prepared_ns = CLOCK.now_ns()

    async def receive(self, ranks: Sequence[int] | None, version: int | None) -> None:
        """Receive weights; `ranks` None are all standalone replicas.

        The time counts from `prepare`, so that what the calls in between took is part of it.
        """
        start_ns = CLOCK.now_ns()
        await until(self._prepared_ns / 1e9 + self._model.transfers.sync_s)
        for rank in self._of("standalone") if ranks is None else ranks:
            self._servers[rank].span("weight_sync", start_ns, method="emulated")
            self._servers[rank].set_version(version)

    async def set_version(self, version: int | None) -> None:
        """The hybrid replicas hold weights that were copied where they are."""
        for rank in self._of("hybrid"):
            self._servers[rank].set_version(version)

    async def hybrid(self, activity: str, seconds: float, what: str) -> None:
        """Spend `seconds` on an activity of all hybrid replicas."""
        await self.memory(self._of("hybrid"), activity, seconds, what)

    async def memory(self, ranks: Sequence[int], activity: str, seconds: float, what: str) -> None:
        """Free memory or take it back."""
        start_ns = CLOCK.now_ns()
        await until(start_ns / 1e9 + seconds)
        for rank in ranks:
            self._servers[rank].span(activity, start_ns, what=what)

    async def flush(self) -> None:
        """Write what was recorded."""
        writer = current()
        if writer is not None:
            writer.flush()

    async def nothing(self, *_: Any, **__: Any) -> None:
        """Answer a call that means nothing here."""

    def _of(self, kind: str) -> list[int]:
        return [rank for rank, server in self._servers.items() if server.what.kind == kind]
