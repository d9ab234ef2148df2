"""Liveness, before any tuning verdict: does the run still make progress?

Advice on a wedged run is worse than none. Every rule compares a silence with what was usual
in this run: a phase is stuck when it is open for longer than max(6 x its own median, a
floor), 6 and the floor being miles' rule. Rules look only at records, so they hold for a
live trace (`now_ns` = now) and for one that was cut off (`now_ns` = the last record).

| alarm | what shows it |
|---|---|
| open_phase | a phase of a lane that never ended |
| no_progress | no training step, sample or request has ended for long |
| near_full_stall | the buffer stays just below what the trainer needs: it lacks the last few |
| dead_process | a recorder that neither ended nor gave a sign of life while others went on |
| dead_engine | a replica's requests stay open while the other replicas finish theirs |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from rlinsight.analyzers.health.alarms import FLOOR_S, Alarm, limit_s
from rlinsight.analyzers.health.dead import dead_engines, dead_processes
from rlinsight.analyzers.health.last_events import LastEvent, last_events
from rlinsight.analyzers.health.stalls import (
    near_full_stall,
    no_progress,
    open_phases,
    usual_step_s,
)
from rlinsight.trace.process import Process
from rlinsight.trace.topology import Topology

#: The least specific alarm comes last.
_ORDER = ("dead_process", "dead_engine", "near_full_stall", "open_phase", "no_progress")


@dataclass(frozen=True)
class Liveness:
    """Alarms, the most specific first, and the last event of each lane, the oldest first."""

    alarms: tuple[Alarm, ...]
    last_events: tuple[LastEvent, ...]

    @property
    def forbids_tuning(self) -> bool:
        """Whether a verdict on tuning would be about a run that does not run."""
        return bool(self.alarms)


def liveness(
    *,
    spans: pl.DataFrame,
    requests: pl.DataFrame,
    samples: pl.DataFrame,
    markers: pl.DataFrame,
    counters: pl.DataFrame,
    topology: Topology,
    processes: Iterable[Process] = (),
    now_ns: int,
    needed: Mapping[str, int] | None = None,
    ended: bool = False,
    succeeded: bool = False,
    floor_s: float = FLOOR_S,
) -> Liveness:
    """Return what stands still at `now_ns`.

    `needed` maps the counter of a buffer's depth to what the trainer waits for, both in the
    counter's unit. `ended`: the run said that it is over, so only the dead are looked for.
    `succeeded`: it also said that all went well, so that those are not dead who only fell silent
    after the last event: programs take their time to end.
    """
    events = last_events(spans, requests, samples, markers)
    over_ns = max((event.ts_ns for event in events), default=now_ns) if succeeded else now_ns
    found = [
        *dead_processes(processes, min(over_ns, now_ns)),
        *dead_engines(requests, topology, now_ns, floor_s),
    ]
    if not ended:
        usual = usual_step_s(spans)
        for counter, count in (needed or {}).items():
            found += near_full_stall(counters, counter, count, now_ns, limit_s(usual, floor_s))
        found += open_phases(spans, now_ns, floor_s)
        found += no_progress(spans, requests, samples, now_ns, floor_s)
    found.sort(key=lambda alarm: (_ORDER.index(alarm.kind), -alarm.for_s))
    return Liveness(tuple(found), events)
