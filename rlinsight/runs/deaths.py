"""Which lanes lost their process while the run went on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rlinsight.runs import processes
from rlinsight.runs.live_state import Event
from rlinsight.trace.process import Process as Recorder
from rlinsight.trace.writer import node_name

#: A child of a recording process that lived this long is part of the engine, not a helper.
_LASTING_S: Final = 10.0
#: Two processes that die at once may differ by this much in their last sign of life.
_HEARTBEAT_NS: Final = 600_000_000
#: Deaths seen this close together may have one cause.
_TOGETHER_S: Final = 1.0
#: A recorder of another node is given up after this long without a sign of life.
_SILENT_S: Final = 30.0


@dataclass(frozen=True)
class Death:
    """A process that went away without ending its recording."""

    lanes: tuple[str, ...]
    node: str
    pid: int
    what: str
    heard_ns: int  # its last sign of life, ns since the epoch
    seen_at: float  # when it was found gone, on the monotonic clock

    def sentence(self, last_events: Mapping[str, Event], now_ns: int) -> str:
        """Say who died, and what was the last thing recorded of it."""
        lanes = ", ".join(f"`{lane}`" for lane in self.lanes) or "no lane of its own"
        last = [last_events[lane] for lane in self.lanes if lane in last_events]
        newest = max(last, key=lambda event: event.at_ns, default=None)
        ending = f"; last event: {newest.sentence(now_ns)}" if newest else ""
        return f"{lanes}: {self.what} {self.pid} on {self.node} died{ending}"


class DeathWatch:
    """Compares the processes that record with those that are alive."""

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self._node = node_name()
        self._known_dead: set[tuple[str, int, int]] = set()
        self._children: dict[processes.Process, float] = {}

    def look(self, recorders: Iterable[Recorder]) -> list[Death]:
        """Return the recorders that have died since the last look."""
        now, found = time.monotonic(), []
        for recorder in recorders:
            if recorder.ended_ns is not None or recorder.key in self._known_dead:
                continue
            if self._is_gone(recorder):
                self._known_dead.add(recorder.key)
                found.append(_death(recorder, recorder.pid, "process", recorder.flushed_ns, now))
        self.deaths += found
        return found

    def look_at_children(
        self, alive: set[processes.Process], recorders: Iterable[Recorder]
    ) -> list[Death]:
        """Return lasting children of recording processes that died before their parent."""
        now = time.monotonic()
        by_pid = {r.pid: r for r in recorders if r.node == self._node and r.ended_ns is None}
        living = {process.pid for process in alive}
        found = []
        for child, since in list(self._children.items()):
            if child in alive:
                continue
            del self._children[child]
            parent = by_pid.get(child.parent)
            if parent and child.parent in living and now - since >= _LASTING_S:
                what = f"its engine process {child.name}"
                found.append(_death(parent, child.pid, what, time.time_ns(), now))
        for process in alive:
            if process.parent in by_pid and process.pid not in by_pid:
                self._children.setdefault(process, now)
        self.deaths += found
        return found

    def first(self) -> list[Death]:
        """Return the deaths that came first; later ones are their consequences.

        Where several were found gone together, those that were silent the longest came first:
        a recorder gives a sign of life every half second.
        """
        if not self.deaths:
            return []
        begin = min(death.seen_at for death in self.deaths)
        together = [death for death in self.deaths if death.seen_at - begin < _TOGETHER_S]
        silent_ns = min(death.heard_ns for death in together) + _HEARTBEAT_NS
        return [death for death in together if death.heard_ns <= silent_ns]

    def _is_gone(self, recorder: Recorder) -> bool:
        if recorder.node == self._node:
            found = processes.find(recorder.pid)
            return found is None or not processes.is_alive(found)
        return time.time() - recorder.flushed_ns / 1e9 > _SILENT_S


def _death(recorder: Recorder, pid: int, what: str, heard_ns: int, now: float) -> Death:
    return Death(_lanes(recorder), recorder.node, pid, what, heard_ns, now)


def _lanes(recorder: Recorder) -> tuple[str, ...]:
    own = [lane for lane in recorder.topology.lanes if lane.pid in (None, recorder.pid)]
    return tuple(lane.id for lane in own)
