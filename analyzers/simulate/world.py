"""Time, and everything that happens by itself while a trainer works or waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.client import Client
from rlinsight.analyzers.simulate.draw import drawn
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.pace import token_times
from rlinsight.analyzers.simulate.replicas import DRAINED, Replicas
from rlinsight.analyzers.simulate.workload import Workload, random_stream
from rlinsight.errors import RlinsightError

#: How long the barrier before an abort lasts at most.
_BARRIER_S = 60.0
#: A trainer that waits while nothing runs, for so long, waits forever.
_STANDSTILL_S = 3600.0
#: So many looks of polls and monitors without one completed prompt say nothing new.
_IDLE_LOOKS = 1_000_000
_ENDLESS = (
    f"the simulated run looks {_IDLE_LOOKS:,} times without one completed prompt: what it waits "
    "for takes too long to simulate; shorten the responses or the training of an update"
)
HANGS = (
    "the simulated run stands still: nothing generates and the trainer waits; this setting "
    "would hang"
)


class World:
    """A job at a moment: its replicas, its timers, and the workload that is drawn for it.

    The trainer is the one who lets time pass: `run_for` while it works, `wait` while it does
    not. Groups that complete meanwhile go to `on_group`.
    """

    def __init__(
        self, calibration: Calibration, knobs: Knobs, seed: int, *, from_start: bool = False
    ) -> None:
        self.knobs = knobs
        self.from_start = from_start  # whether what is done only once is still to be done
        self.now = 0.0
        self.version = 0  # live on the replicas
        costs, self.luck = random_stream(seed, "costs"), random_stream(seed, "luck")
        uncertain = calibration.uncertainty.draw(costs)
        self.calibration = calibration = drawn(calibration, costs)
        self.work = Workload(calibration, knobs, seed, pace=uncertain["training"])
        replicas = knobs.hybrid_replicas + knobs.standalone_replicas
        token_s = token_times(calibration, knobs, uncertain["decode"])
        decode = calibration.decode
        self.replicas = Replicas(
            replicas, token_s, decode.start_s, edge_s=decode.arrival_s + decode.end_s
        )
        self._submit_s = calibration.costs.submit_s
        self._submit_each_s = calibration.costs.submit_each_s
        self._arrival_s = calibration.decode.arrival_s
        self._client = Client(self.after, lambda: self.now)
        self._reward_s = calibration.costs.reward_s + calibration.decode.end_s
        # In fully_async the scoring of a validation is measured as what follows it.
        scored_s = 0.0 if knobs.mode == "fully_async" else calibration.costs.reward_s
        self._validated_s = self.replicas.edge_s + scored_s
        self._validating: set[int] = set()
        self.hybrid = list(range(knobs.hybrid_replicas))
        self.standalone = list(range(knobs.hybrid_replicas, replicas))
        self.tokens: dict[int, float] = {}  # prompt and response tokens of a group
        self.version_of: dict[int, int] = {}  # version of its first tokens
        self.on_group: Callable[[int], None] = lambda _: None
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._looks = 0  # since a prompt was completed

    def submit_group(self) -> int:
        """Draw a prompt's responses and send them to replicas; return the group."""
        lengths = self.work.responses()
        group = self.replicas.new_group(len(lengths))
        prompt = self.calibration.prompt_tokens
        self.tokens[group] = sum(lengths) + prompt * len(lengths)
        self.soon(
            self._submit_s,
            lambda: self._client.work(
                self._submit_each_s,
                lambda: self.soon(self._arrival_s, lambda: self._arrive(group, lengths)),
            ),
        )
        return group

    def soon(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call` in `delay` seconds, now where that is none."""
        if delay:
            self.after(delay, call)
        else:
            call()

    def _arrive(self, group: int, lengths: list[float]) -> None:
        """Reach the replicas; behind a closed gate, tokens will be of the next version."""
        places = self._route(group, lengths)
        self.version_of[group] = self.version + self.replicas.closed[places[0]]

    def _route(self, group: int, lengths: list[float]) -> list[int]:
        places = self.replicas.route(len(lengths))
        for replica, work in zip(places, lengths, strict=True):
            self.replicas.submit(self.now, replica, work, group)
        return places

    def cost(self, name: str) -> float:
        """Return a recorded cost in seconds, 0 where the run had none."""
        value: float = getattr(self.calibration.costs, name)
        return value

    def abort(self, replicas: list[int], *, anywhere: bool = False) -> None:
        """Stop these replicas; what ran is asked for again a second later, where it was.

        Or `anywhere`: after the balancer has forgotten where requests were.
        """
        for replica in self._closing(replicas):
            self._retry_later(self.replicas.abort(self.now, [replica]), anywhere=anywhere)

    def truncate(self, replicas: list[int]) -> None:
        """Stop these replicas; what ran ends with the tokens that it has."""
        for replica in self._closing(replicas):
            for _, work, group in self.replicas.abort(self.now, [replica]):
                if group in self.tokens:
                    self.tokens[group] -= work
                self.replicas.left[group] -= 1
                if not self.replicas.left[group]:
                    self._ended(group)

    def open(self, replicas: list[int]) -> None:
        """Open gates; what was parked there starts after its transport into the engine."""
        admitted = self.replicas.open(replicas)
        if admitted:
            self.after(self._arrival_s, partial(self._retry, admitted, anywhere=False))

    def reject(self, replicas: list[int]) -> None:
        """Stop replicas that leave the balancer: what ran or arrives goes elsewhere."""
        for replica in self._closing(replicas):
            stopped = self.replicas.abort(self.now, [replica])
            self._retry_later(stopped + self.replicas.reject(replica))

    def _closing(self, replicas: list[int]) -> Iterator[int]:
        """Close the gates and yield each replica once it may be aborted.

        A replica waits until every request that it has taken shows a first token, for a minute
        at most (`vllm_async_server.py`): with requests queued inside, it goes on generating.
        """
        self.replicas.close(replicas)
        deadline = self.now + _BARRIER_S
        rest = list(replicas)
        while rest:
            late = self.now >= deadline
            ready = [replica for replica in rest if late or not self.replicas.queued(replica)]
            rest = [replica for replica in rest if replica not in ready]
            yield from ready
            if rest:
                self._run(deadline, partial(self._any_drained, rest))

    def _any_drained(self, replicas: list[int]) -> bool:
        return not all(map(self.replicas.queued, replicas))

    def _retry_later(
        self, stopped: list[tuple[int, float, int]], *, anywhere: bool = False
    ) -> None:
        if stopped:
            again = partial(self._ask_again, stopped, anywhere=anywhere)
            self.after(self.calibration.costs.resume_s, again)

    def _ask_again(self, stopped: list[tuple[int, float, int]], *, anywhere: bool) -> None:
        """Hand stopped requests to the client, to which each is its part of a prompt."""
        each_s = self._submit_each_s / self.knobs.group_size
        if not each_s:
            self.soon(self._arrival_s, partial(self._retry, stopped, anywhere=anywhere))
            return
        for request in stopped:
            retry = partial(self._retry, [request], anywhere=anywhere)
            self._client.work(each_s, partial(self.soon, self._arrival_s, retry))

    def _retry(self, stopped: list[tuple[int, float, int]], *, anywhere: bool) -> None:
        routed = set() if anywhere else set(self.replicas.routed)
        moved = [work for work in stopped if work[0] not in routed]
        for replica, work, group in stopped:
            if replica in routed:
                self.replicas.submit(self.now, replica, work, group)
        for replica, (_, work, group) in zip(self.replicas.route(len(moved)), moved, strict=True):
            self.replicas.submit(self.now, replica, work, group)

    def submit_validation(self) -> int:
        """Route a validation set; return its group."""
        lengths = self.work.validation()
        group = self.replicas.new_group(len(lengths))
        self._route(group, lengths)
        self._validating.add(group)
        return group

    def validation_done(self, group: int) -> bool:
        """Whether every response of a validation set is there."""
        return group not in self._validating

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call` in `delay` seconds."""
        heappush(self._timers, (self.now + delay, next(self._order), call))

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self._run(self.now + seconds, lambda: False)

    def wait(self, until: Callable[[], bool]) -> None:
        """Let time pass until a condition holds. Raises RlinsightError where it never can."""
        if not until():
            self._run(inf, until)

    def _run(self, end: float, done: Callable[[], bool]) -> None:
        progress = self.now
        while True:
            self._looks += 1
            if self._looks > _IDLE_LOOKS:
                raise RlinsightError(_ENDLESS)
            timer = self._timers[0][0] if self._timers else inf
            limit = min(end, timer)
            ended = self.replicas.run(limit)
            if ended is not None:
                self.now, group = ended
                progress = self.now
                if group != DRAINED:
                    self._ended(group)
            elif timer <= end and timer < inf:
                self.now, _, call = heappop(self._timers)
                call()
                # A burst arrives at one moment: nothing else can happen in between.
                while self._timers and self._timers[0][0] == self.now and not done():
                    heappop(self._timers)[2]()
                if self.replicas.running():
                    progress = self.now
                elif end == inf and self.now - progress > _STANDSTILL_S:
                    raise RlinsightError(HANGS)
            elif end == inf:
                raise RlinsightError(HANGS)
            else:
                self.now = end
                return
            if done():
                return

    def _ended(self, group: int) -> None:
        self._looks = 0
        if group in self._validating:
            self.after(self._validated_s, lambda: self._validating.remove(group))
            return
        self.soon(self._reward_s, lambda: self.on_group(group))
