"""Replicas that decode: continuous batching as processor sharing in virtual time.

Every running response of a replica gets one token per iteration, and an iteration takes
`token_s[n]` seconds with n responses running. So a replica has one clock that counts tokens:
a response that starts at clock c with w tokens of work ends when the clock shows c + w, however
often others come and go in between; only the pace of the clock changes. A completion costs
O(log n), and nothing is recomputed for the others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

#: In place of a group: see `Replicas.run`.
DRAINED = -1


class Replicas:
    """All replicas of a job; responses belong to groups, and a group ends with its last one.

    `left[group]` counts the responses of a group that have not ended. A replica behind a closed
    gate parks what arrives; above `capacity` responses wait inside the replica. Times are
    seconds, work is tokens. `edge_s` is the transport to and from a replica: it counts as busy,
    as it does where requests are recorded from submission to response.
    """

    def __init__(
        self, count: int, token_s: Sequence[float], start_s: float, edge_s: float = 0.0
    ) -> None:
        self.capacity = len(token_s) - 1
        self.token_s = token_s
        self.start_s = start_s
        self.edge_s = edge_s
        self.left: list[int] = []
        self.routed: list[int] = list(range(count))
        self.closed = [False] * count
        self.busy_s = [0.0] * count
        self.aborted_responses = 0
        self._ends: list[list[float]] = [[] for _ in range(count)]
        self._groups: list[list[int]] = [[] for _ in range(count)]
        self._waiting: list[deque[tuple[float, int]]] = [deque() for _ in range(count)]
        self._parked: list[list[tuple[float, int]]] = [[] for _ in range(count)]
        # What runs, waits or is parked on each replica, x count + its number: least loaded first.
        self._keys = list(range(count))
        self._clock = [0.0] * count
        self._seen = [0.0] * count  # when each clock was read last
        self._busy_since = [inf] * count
        self._idle_since = [-inf] * count
        self._due = [inf] * count  # when each replica completes its next response
        # The same in order, with what is outdated: an entry counts while it is what `_due` says.
        self._next: list[tuple[float, int]] = []
        self._started: set[int] = set()  # replicas whose next completion is to be worked out

    def new_group(self, responses: int) -> int:
        """Return the number of a new group of so many responses."""
        self.left.append(responses)
        return len(self.left) - 1

    def loads(self) -> list[int]:
        """Return the requests in flight on each replica, as the load balancer counts them."""
        return [key // len(self._keys) for key in self._keys]

    def route(self, count: int) -> list[int]:
        """Return the replica of each of `count` new requests: always a least loaded one."""
        if len(self.routed) == 1:
            return self.routed * count
        every = len(self._keys)
        heap = [self._keys[replica] for replica in self.routed]
        heapify(heap)
        chosen = []
        for _ in range(count):
            key = heap[0]
            heapreplace(heap, key + every)
            chosen.append(key % every)
        return chosen

    def submit(self, now: float, replica: int, work: float, group: int) -> None:
        """Hand a response to a replica, which parks it behind a closed gate."""
        self._keys[replica] += len(self._keys)
        if self.closed[replica]:
            self._parked[replica].append((work, group))
        elif len(self._ends[replica]) >= self.capacity:
            self._waiting[replica].append((work, group))
        else:
            self._start(now, replica, work, group)

    def run(self, until: float) -> tuple[float, int] | None:
        """Advance to the next end of a group and return (when, group).

        `DRAINED` stands for a group where the last response that waited behind a closed gate has
        started. None when nothing of the kind happens by `until`: then all before it has.
        """
        due, ends, groups, left = self._due, self._ends, self._groups, self.left
        clock, seen, token_s, waiting = self._clock, self._seen, self.token_s, self._waiting
        keys, every, upcoming = self._keys, len(self._keys), self._next
        while True:
            if self._started:
                self._plan()
            if not upcoming or upcoming[0][0] > until:
                return None
            now, replica = heappop(upcoming)
            if due[replica] != now:
                continue
            running = ends[replica]
            clock[replica] = running.pop(0)
            seen[replica] = now
            group = groups[replica].pop(0)
            keys[replica] -= every
            dry = False
            if waiting[replica]:
                self._start(now, replica, *waiting[replica].popleft())
                dry = self.closed[replica] and not waiting[replica]
            elif running:
                at = now + (running[0] - clock[replica]) * token_s[len(running)]
                due[replica] = at
                heappush(upcoming, (at, replica))
            else:
                due[replica] = inf
                self._idle(now + self.edge_s, replica)
            left[group] -= 1
            if not left[group]:
                return now, group
            if dry:
                return now, DRAINED

    def close(self, replicas: Sequence[int]) -> None:
        """Close gates: what arrives from now on is parked."""
        for replica in replicas:
            self.closed[replica] = True

    def queued(self, replica: int) -> bool:
        """Whether responses wait inside the replica for a slot."""
        return bool(self._waiting[replica])

    def abort(self, now: float, replicas: Sequence[int]) -> list[tuple[int, float, int]]:
        """Stop what runs; return (replica, tokens still to make, group) of each.

        Responses that had not started lose nothing; parked ones stay parked.
        """
        stopped: list[tuple[int, float, int]] = []
        for replica in replicas:
            at = self._read(now, replica)
            stopped += [
                (replica, end - at if end > at else 0.0, group)  # equal, but for rounding
                for end, group in zip(self._ends[replica], self._groups[replica], strict=True)
            ]
            stopped += [(replica, work, group) for work, group in self._waiting[replica]]
            self._keys[replica] = len(self._parked[replica]) * len(self._keys) + replica
            self._waiting[replica].clear()
            if self._ends[replica]:
                self._idle(now, replica)
                self._ends[replica].clear()
                self._groups[replica].clear()
                self._due[replica] = inf
        self.aborted_responses += len(stopped)
        return stopped

    def reject(self, replica: int) -> list[tuple[int, float, int]]:
        """Give back what is parked at a gate."""
        parked = [(replica, work, group) for work, group in self._parked[replica]]
        self._parked[replica].clear()
        self._keys[replica] -= len(parked) * len(self._keys)
        return parked

    def open(self, replicas: Sequence[int]) -> list[tuple[int, float, int]]:
        """Open gates; return what was parked there, which is to be submitted."""
        admitted = [work for replica in replicas for work in self.reject(replica)]
        for replica in replicas:
            self.closed[replica] = False
        return admitted

    def busy(self, now: float, replicas: Sequence[int]) -> float:
        """Return the seconds that these replicas have generated so far, summed over them."""
        return sum(self._busy(now, replica) for replica in replicas)

    def _busy(self, now: float, replica: int) -> float:
        since, until = self._busy_since[replica], self._idle_since[replica]
        if since < now:
            return self.busy_s[replica] + now - since
        # A last response on its way back counts until it arrives, no further than now.
        return self.busy_s[replica] - max(0.0, until - now)

    def running(self) -> int:
        """Return how many responses are being decoded."""
        return sum(map(len, self._ends))

    def _idle(self, now: float, replica: int) -> None:
        self.busy_s[replica] += now - self._busy_since[replica]
        self._busy_since[replica], self._idle_since[replica] = inf, now

    def _read(self, now: float, replica: int) -> float:
        running = len(self._ends[replica])
        if not running:
            return self._clock[replica]
        return self._clock[replica] + (now - self._seen[replica]) / self.token_s[running]

    def _start(self, now: float, replica: int, work: float, group: int) -> None:
        ends, token_s = self._ends[replica], self.token_s
        running = len(ends)
        at = self._clock[replica]
        if running:
            at += (now - self._seen[replica]) / token_s[running]
        elif self._busy_since[replica] == inf:
            self._busy_since[replica] = max(now, self._idle_since[replica])
        self._clock[replica] = at
        self._seen[replica] = now
        pace = token_s[running + 1]
        end = at + work + self.start_s / pace
        place = bisect_right(ends, end)
        ends.insert(place, end)
        self._groups[replica].insert(place, group)
        self._started.add(replica)

    def _plan(self) -> None:
        """Work out when the replicas that started something complete their next response."""
        for replica in self._started:
            ends = self._ends[replica]
            if ends:
                left = (ends[0] - self._clock[replica]) * self.token_s[len(ends)]
                self._due[replica] = self._seen[replica] + left
                heappush(self._next, (self._due[replica], replica))
        self._started.clear()
