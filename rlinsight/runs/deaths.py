"""Which lanes lost their process while the run went on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlinsight.runs import processes
from rlinsight.runs.live_state import Event, LiveState
from rlinsight.runs.ray_log import DeadActor
from rlinsight.trace.process import Process as Recorder
from rlinsight.trace.writer import node_name

#: A child of a recording process that lived this long is part of the engine, not a helper.
_LASTING_S: Final = 10.0
#: Deaths seen this close together may have one cause.
_TOGETHER_NS: Final = 1_000_000_000
#: Two processes that die at once may differ by this much in their last sign of life.
_HEARTBEAT_NS: Final = 600_000_000
#: A recorder of another node is given up after this long without a sign of life.
_SILENT_NS: Final = 30_000_000_000
#: A death is news only if the run still goes on so much later; a run that ends takes all along.
_NEWS_AFTER_NS: Final = 3_000_000_000


@dataclass(frozen=True)
class Death:
    """A process that went away without ending its recording. Times in ns since the epoch."""

    lanes: tuple[str, ...]
    node: str
    pid: int
    what: str
    heard_ns: int  # its last sign of life
    seen_ns: int  # when it was found gone

    def sentence(self, last_events: Mapping[str, Event], now_ns: int) -> str:
        """Say who died, and what was the last thing recorded of it."""
        lanes = ", ".join(f"`{lane}`" for lane in self.lanes) or "no lane of its own"
        last = [last_events[lane] for lane in self.lanes if lane in last_events]
        newest = max(last, key=lambda event: event.at_ns, default=None)
        ending = f"; last event: {newest.sentence(now_ns)}" if newest else ""
        return f"{lanes}: {self.what} (pid {self.pid} on {self.node}) died{ending}"


class DeathWatch:
    """Compares the processes that record with those that are alive."""

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self._told: set[Death] = set()
        self._node = node_name()
        self._names: dict[int, str] = {}
        self._known_dead: set[tuple[str, int, int]] = set()
        self._children: dict[processes.Process, int] = {}
        #: Of recorders on other nodes: their last sign of life, and when it was seen here.
        self._heard: dict[tuple[str, int, int], tuple[int, int]] = {}

    def look(self, state: LiveState) -> None:
        """Note the recorders that have died since the last look; costs a question per pid."""
        now_ns = time.time_ns()
        for recorder in state.processes:
            if recorder.ended_ns is not None or recorder.key in self._known_dead:
                continue
            if self._is_gone(recorder, now_ns):
                self._known_dead.add(recorder.key)
                what = self._names.get(recorder.pid, "a recording process")
                _, heard_ns = self._heard.get(recorder.key, (0, recorder.flushed_ns))
                self._add(state, recorder, recorder.pid, what, heard_ns, now_ns)

    def look_at_children(self, alive: set[processes.Process], state: LiveState) -> None:
        """Note lasting children of recording processes that died before their parent."""
        now_ns, here = time.time_ns(), [r for r in state.processes if r.node == self._node]
        by_pid = {r.pid: r for r in here if r.ended_ns is None}
        living = {process.pid for process in alive}
        for child, since_ns in list(self._children.items()):
            if child in alive:
                continue
            del self._children[child]
            parent = by_pid.get(child.parent)
            if parent and child.parent in living and now_ns - since_ns >= _LASTING_S * 1e9:
                what = f"its child process {child.name}"
                self._add(state, parent, child.pid, what, now_ns, now_ns)
        for process in alive:
            if process.parent in by_pid and process.pid not in by_pid:
                self._children.setdefault(process, now_ns)

    def news(self, state: LiveState) -> list[Death]:
        """Return deaths that the run has survived for a while, each once.

        When most of those that record are gone, the run is ending, and that is no news.
        """
        before_ns = time.time_ns() - _NEWS_AFTER_NS
        if 2 * len(self._known_dead) > len(state.processes):
            return []
        new = [d for d in self.deaths if d.seen_ns <= before_ns and d not in self._told]
        self._told.update(new)
        return new

    def cause(self, accused: Sequence[DeadActor], state: LiveState, end_ns: int) -> list[Death]:
        """Return the deaths that ended the run, as far as that can be told.

        Whom Ray accuses is believed. Otherwise those that were gone first, unless so many went
        together that the program was ending, or it had begun to end by itself before.
        """
        by_pid = {death.pid: death for death in self.deaths}
        for name, pid in accused[:1]:
            unknown = Death((), self._node, pid, f"ray::{name}", end_ns, end_ns)
            return [by_pid.get(pid, unknown)]
        first = self._first(shutdown_began(state.processes, end_ns))
        alone = len(first) == 1 or 2 * len(first) <= len(state.processes)
        return first if alone else []

    def _first(self, shutdown_ns: int | None) -> list[Death]:
        """Return the deaths that came first and before `shutdown_ns`.

        Where several were found gone together, those that were silent the longest came
        first: a recorder gives a sign of life every half second.
        """
        candidates = [d for d in self.deaths if shutdown_ns is None or d.seen_ns < shutdown_ns]
        if not candidates:
            return []
        begin_ns = min(death.seen_ns for death in candidates)
        together = [d for d in candidates if d.seen_ns - begin_ns < _TOGETHER_NS]
        silent_ns = min(death.heard_ns for death in together) + _HEARTBEAT_NS
        return [death for death in together if death.heard_ns <= silent_ns]

    def _add(
        self, state: LiveState, recorder: Recorder, pid: int, what: str, heard_ns: int, now_ns: int
    ) -> None:
        lanes = state.lanes_of(recorder)
        self.deaths.append(Death(lanes, recorder.node, pid, what, heard_ns, now_ns))

    def _is_gone(self, recorder: Recorder, now_ns: int) -> bool:
        if recorder.node != self._node:
            return now_ns - self._heard_ns(recorder, now_ns) > _SILENT_NS
        found = processes.find(recorder.pid)
        if found is None or not processes.is_alive(found):
            return True
        self._names[recorder.pid] = found.name
        return False

    def _heard_ns(self, recorder: Recorder, now_ns: int) -> int:
        """Return when a recorder of another node was last heard of, by the clock of this one.

        Its own clock may be minutes off; that its sign of life changes is all that counts.
        """
        sign, heard_ns = self._heard.get(recorder.key, (None, 0))
        if sign != recorder.flushed_ns:
            self._heard[recorder.key] = (recorder.flushed_ns, now_ns)
            return now_ns
        return heard_ns


def shutdown_began(recorders: Iterable[Recorder], end_ns: int) -> int | None:
    """Return when the run's programs began to end by themselves, None if they did not.

    That is when the first of them closed its recording, among those that were still recording
    half a minute before the end.
    """
    recent = end_ns - _SILENT_NS
    ended = [r.ended_ns for r in recorders if r.ended_ns is not None and r.ended_ns > recent]
    return min(ended, default=None)
