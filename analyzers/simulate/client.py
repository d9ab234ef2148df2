"""The client between rollouter or trainer and the replicas: one event loop for all requests.

Whatever is handed to it shares its time equally (processor sharing), as tasks of an event loop
do: of a burst, the first prompt arrives late, and then one after the other. It has one clock that
counts work, as a replica has one that counts tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

#: `after(seconds, call)`, and what the time is.
After = Callable[[float, Callable[[], None]], None]
Now = Callable[[], float]


class Client:
    """Works on what it is handed, and calls back when each piece is done. Times are seconds."""

    def __init__(self, after: After, now: Now) -> None:
        self._after, self._now = after, now
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._clock = 0.0
        self._seen = 0.0
        self._order = count()
        self._planned = 0

    def work(self, seconds: float, done: Callable[[], None]) -> None:
        """Take on work of so many seconds; at once where it is none.

        Worked example: 0.2 s of work taken on at 0 s, and again at 0.1 s: alone until 0.1 s, then
        shared: done at 0.3 and 0.4 s.
        """
        if not seconds:
            done()
            return
        self._read()
        heappush(self._jobs, (self._clock + seconds, next(self._order), done))
        self._plan()

    def _read(self) -> None:
        now = self._now()
        if self._jobs:
            self._clock += (now - self._seen) / len(self._jobs)
        self._seen = now

    def _plan(self) -> None:
        """Set a timer for the next piece; a timer that is set later overrules earlier ones."""
        self._planned += 1
        if self._jobs:
            number = self._planned
            left = (self._jobs[0][0] - self._clock) * len(self._jobs)
            self._after(left, lambda: self._due(number))

    def _due(self, number: int) -> None:
        if number != self._planned:
            return
        self._read()
        self._clock, _, done = heappop(self._jobs)
        self._plan()
        done()
