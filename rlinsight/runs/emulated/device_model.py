"""A replica as a queue of requests: a pure discrete-event model, exact in its own time.

Up to `capacity` requests run; others wait, first come first served. A running request is
prefilled, which gives its first token, then decodes one token a step together with all that
decode; a step's time depends on how many they are. The KV cache limits what is admitted; where
it fills up, the request admitted last goes back to the head of the queue, keeps its tokens, and
is prefilled again. Prefill does not slow down decoding.

`advance(t)` handles everything that happens until `t` at the time it is due, however late it is
called. Times in emulated seconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from rlinsight.runs.emulated.laws import ReplicaCost

#: Free KV tokens, per running request, without which nothing is admitted: a block of vLLM.
_HEADROOM_TOKENS: Final = 16

Kind = Literal["first_token", "resumed", "finished", "preempted"]


@dataclass(eq=False)
class Job:
    """A request in the model: `prompt` tokens to prefill, `need` tokens to generate.

    `made` counts its tokens when it was last waiting or began to decode; `_base` is the step
    count of the replica at which it would have had none.
    """

    prompt: int
    need: int
    made: int = 0
    place: int = 0
    _base: float = 0.0

    @property
    def held(self) -> int:
        """KV tokens that it takes when it is (re)admitted."""
        return self.prompt + self.made


@dataclass(frozen=True)
class Event:
    """Something that happened at `at`, and the state of the replica right after it."""

    at: float
    kind: Kind
    job: Job
    running: int
    waiting: int
    kv_tokens: float


@dataclass
class Replica:
    """The queue of one replica."""

    cost: ReplicaCost
    now: float = 0.0
    waiting: deque[Job] = field(default_factory=deque)
    _prefilling: list[tuple[float, int, Job]] = field(default_factory=list)
    _decoding: list[tuple[float, int, Job]] = field(default_factory=list)
    _steps: float = 0.0
    _places: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def running(self) -> int:
        """Requests that were admitted."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def kv_tokens(self) -> float:
        """Tokens in the KV cache at `now`."""
        return self._kv_constant() + len(self._decoding) * self._steps

    def submit(self, at: float, job: Job) -> list[Event]:
        """Take a request at `at`; return what happened until then."""
        events = self.advance(at)
        self.waiting.append(job)
        self._admit()
        return events

    def abort(self, at: float) -> tuple[list[Event], list[tuple[Job, int]]]:
        """Empty the replica; return what happened until then, and each request's tokens."""
        events = self.advance(at)
        decoding = [(job, self._tokens(job)) for _, _, job in sorted(self._decoding)]
        others = [job for _, _, job in sorted(self._prefilling)] + list(self.waiting)
        self.waiting.clear()
        self._prefilling, self._decoding = [], []
        return events, decoding + [(job, job.made) for job in others]

    def advance(self, until: float) -> list[Event]:
        """Handle everything that is due until `until`, in order."""
        events = []
        while (due := self.next_event()) is not None and due <= until:
            self._move_to(due)
            events.append(self._handle(due))
        self._move_to(until)
        return events

    def next_event(self) -> float | None:
        """Return when something happens next, None while nothing runs."""
        times = [self._prefilling[0][0]] if self._prefilling else []
        if self._decoding:
            target = min(self._decoding[0][0], self._full_at())
            times.append(self.now + max(0.0, target - self._steps) * self._step_s())
        return min(times, default=None)

    # -- inside ------------------------------------------------------------------------

    def _step_s(self) -> float:
        return self.cost.step(len(self._decoding))

    def _move_to(self, at: float) -> None:
        if at > self.now:
            if self._decoding:
                self._steps += (at - self.now) / self._step_s()
            self.now = at

    def _handle(self, due: float) -> Event:
        if self._prefilling and self._prefilling[0][0] <= due:
            job = heapq.heappop(self._prefilling)[2]
            return self._event(*self._first_token(job))
        if self._full_at() < self._decoding[0][0]:
            return self._event("preempted", self._preempt())
        self._steps = max(self._steps, self._decoding[0][0])  # a rounding error would loop here
        job = heapq.heappop(self._decoding)[2]
        self._admit()
        return self._event("finished", job)

    def _first_token(self, job: Job) -> tuple[Kind, Job]:
        first = job.made == 0
        job.made += 1
        job._base = self._steps - job.made
        if job.made >= job.need:
            self._admit()
            return "finished", job
        heapq.heappush(self._decoding, (job._base + job.need, job.place, job))
        return "first_token" if first else "resumed", job

    def _preempt(self) -> Job:
        last = max(self._decoding, key=lambda entry: entry[1])
        self._decoding.remove(last)
        heapq.heapify(self._decoding)
        job = last[2]
        job.made = self._tokens(job)
        self.waiting.appendleft(job)
        return job

    def _admit(self) -> None:
        while self.waiting and self.running < self.cost.capacity and self._fits(self.waiting[0]):
            job = self.waiting.popleft()
            job.place = next(self._places)
            done = self.now + self.cost.prefill(job.held)
            heapq.heappush(self._prefilling, (done, job.place, job))

    def _fits(self, job: Job) -> bool:
        if not self.running:  # alone it runs, whatever it takes
            return True
        headroom = _HEADROOM_TOKENS * self.running
        return self.kv_tokens + job.held + headroom <= self.cost.kv_tokens

    def _tokens(self, job: Job) -> int:
        return min(job.need - 1, int(self._steps - job._base + 1e-9))

    def _kv_constant(self) -> float:
        decoding = sum(job.prompt - job._base for _, _, job in self._decoding)
        return decoding + sum(job.held for _, _, job in self._prefilling)

    def _full_at(self) -> float:
        """Return the step count at which the KV cache is full; a request alone fills none."""
        if self.running < 2 or not self._decoding:
            return float("inf")
        return (self.cost.kv_tokens - self._kv_constant()) / len(self._decoding)

    def _event(self, kind: Kind, job: Job) -> Event:
        return Event(self.now, kind, job, self.running, len(self.waiting), self.kv_tokens)
