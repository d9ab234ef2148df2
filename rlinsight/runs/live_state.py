"""What is known of a run while it goes on: step, idle time so far, queue, last event per lane."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rlinsight.runs.coverage import Coverage
from rlinsight.trace.process import Process
from rlinsight.trace.run_clock import RealClock, RunClock
from rlinsight.trace.topology import Lane, Topology

_STEP_METRIC: Final = "timing_s/step"
_THROUGHPUT_METRIC: Final = "perf/throughput"
STEP_METRICS: Final = (_STEP_METRIC, _THROUGHPUT_METRIC)
#: What stands between rollouts and trainer: fully_async's message queue, the v1 replay buffer.
QUEUE_COUNTERS: Final = ("queue_depth", "replay_finished")
_RECENT_STEPS: Final = 6


@dataclass(frozen=True)
class Event:
    """The latest thing seen on a lane; `end_ns` None while it goes on. Times in ns."""

    start_ns: int
    end_ns: int | None
    what: str
    step: int | None

    @property
    def at_ns(self) -> int:
        """When it was last heard of."""
        return self.start_ns if self.end_ns is None else self.end_ns

    def sentence(self, now_ns: int) -> str:
        """Return it in words, with its age in seconds."""
        age_s = (now_ns - self.at_ns) / 1e9
        step = "" if self.step is None else f" of step {self.step}"
        if self.end_ns is None:
            return f"{self.what}{step}, open for {age_s:.0f} s"
        return f"{self.what}{step}, ended {age_s:.0f} s ago"


@dataclass
class LiveState:
    """Figures for people who watch; the analysis of the finished trace is what counts.

    `clock` is that of the recorded times: on emulated devices not the machine's. Ratios are of
    the time since the first training step began, None before it.
    """

    clock: RunClock = field(default_factory=RealClock)
    records: int = 0
    step: int | None = None
    tokens_per_s_per_device: float | None = None
    queue_depth: int | None = None
    first_step_ns: int | None = None
    processes: list[Process] = field(default_factory=list)
    last_events: dict[str, Event] = field(default_factory=dict)
    used_lanes: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    step_ends_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT_STEPS))
    _waiting: Coverage = field(default_factory=Coverage)
    _generating: dict[str, Coverage] = field(default_factory=dict)

    @property
    def topology(self) -> Topology:
        """All lanes and devices declared so far."""
        return Topology.union(process.topology for process in self.processes)

    def lanes_of(self, process: Process) -> tuple[str, ...]:
        """Return the lanes of a process: those it declared as its own, else those it used."""
        owners = {lane.id: lane.pid for lane in self.topology.lanes}
        declared = [lane.id for lane in process.topology.lanes]
        own = [lane for lane in declared if owners[lane] in (None, process.pid)]
        return tuple(own or sorted(self.used_lanes.get((process.node, process.pid), ())))

    def note(self, lane: str, event: Event, process: tuple[str, int]) -> None:
        """Keep the latest event of a lane, recorded by `process` (node, pid)."""
        self.used_lanes.setdefault(process, set()).add(lane)
        known = self.last_events.get(lane)
        if known is None or event.at_ns >= known.at_ns:
            self.last_events[lane] = event

    def take_steps(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read spans `step`: the first one starts the clock of the ratios."""
        for row in rows:
            if self.first_step_ns is None or row["start_ns"] < self.first_step_ns:
                self.first_step_ns = row["start_ns"]

    def take_waits(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read spans `wait_samples` of the trainer."""
        for row in rows:
            _add(self._waiting, row["start_ns"], row["start_ns"], row["end_ns"])

    def take_requests(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read generation requests: a replica is busy while it has one."""
        for row in rows:
            busy = self._generating.setdefault(row["lane"], Coverage())
            _add(busy, (row["request_id"], row["attempt"]), row["submit_ns"], row["end_ns"])

    def take_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read what the framework logs once per step."""
        for row in rows:
            if row["key"] == _THROUGHPUT_METRIC:
                self.tokens_per_s_per_device = row["value"]
            elif row["key"] == _STEP_METRIC and row["step"] is not None:
                self.step = max(row["step"], self.step or 0)
                self.step_ends_ns.append(row["ts_ns"])

    def take_counters(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Read the depth of the queue between rollouts and trainer."""
        for row in rows:
            if math.isfinite(row["value"]):
                self.queue_depth = int(row["value"])

    def trainer_idle(self, now_ns: int) -> float | None:
        """Return the share of time the trainer has waited for samples."""
        return self._share(self._waiting, now_ns)

    def rollout_idle(self, now_ns: int) -> float | None:
        """Return the share of time a replica had no request, averaged over replicas.

        Where there are standalone replicas, hybrid ones are left out: they live on the
        trainer's devices.
        """
        busy = [self._share(c, now_ns) for c in self._counted_replicas()]
        known = [share for share in busy if share is not None]
        return 1.0 - sum(known) / len(known) if known else None

    def seconds_per_step(self) -> float | None:
        """Return the mean real time between the last few logged steps."""
        ends = self.step_ends_ns
        if len(ends) < 2:
            return None
        return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e9 * self.clock.scale

    def _counted_replicas(self) -> list[Coverage]:
        replicas: dict[str, Lane] = {lane.id: lane for lane in self.topology.replicas()}
        standalone = [id_ for id_, lane in replicas.items() if lane.engine_kind == "standalone"]
        counted = standalone or list(self._generating)
        return [self._generating.get(id_, Coverage()) for id_ in counted]

    def _share(self, coverage: Coverage, now_ns: int) -> float | None:
        if self.first_step_ns is None or now_ns <= self.first_step_ns:
            return None
        elapsed_ns = now_ns - self.first_step_ns
        return coverage.covered_ns(now_ns, since_ns=self.first_step_ns) / elapsed_ns


def _add(coverage: Coverage, key: Any, start_ns: int, end_ns: int | None) -> None:
    if end_ns is None:
        coverage.open(key, start_ns)
    else:
        coverage.close(key, start_ns, end_ns)
