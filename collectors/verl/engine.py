"""What happens inside a replica's engine: running and waiting requests, KV cache, preemptions.

The numbers are vLLM's own scheduler and iteration statistics, taken by a stat logger in the
server process. The running and waiting counts and the preemptions are recorded at every
change; KV-cache use changes every engine step, so of each sampling interval its minimum,
maximum and last value are kept, at the times they occurred.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlinsight.collectors.verl import wrap
from rlinsight.collectors.verl.gauges import record_changes
from rlinsight.collectors.verl.hooks import Call, Hook
from rlinsight.collectors.verl.prefix_cache import HitRate

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

HOOK_NAME = "vllm.engine_stats"
_DEFAULT_INTERVAL_S = 1.0
#: Where `stat_loggers` stands among the arguments of `AsyncLLM.__init__`, without self.
_STAT_LOGGERS_AT = 7

#: Set once a stat logger of ours is in place in this process.
stats_active = False


def sample_interval_ns() -> int:
    """Return the sampling interval of RLINSIGHT_COLLECTORS in ns, 1 s where none is given."""
    try:
        settings = json.loads(os.environ.get("RLINSIGHT_COLLECTORS") or "{}")
        return int(float(settings.get("sample_interval_s", _DEFAULT_INTERVAL_S)) * 1e9)
    except (ValueError, AttributeError, TypeError):
        return int(_DEFAULT_INTERVAL_S * 1e9)


class Envelope:
    """A gauge that changes faster than it is worth recording; its extremes are never lost.

    `add` returns the points to record: none within an interval, and when one has passed its
    minimum, maximum and last value in order of time. Equal values are given once.
    """

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns = interval_ns
        self._began_ns: int | None = None
        self._low: tuple[int, float] | None = None
        self._high: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None
        self._recorded: float | None = None

    def add(self, ts_ns: int, value: float) -> list[tuple[int, float]]:
        """Take the value at `ts_ns` and return what is due for recording."""
        points: list[tuple[int, float]] = []
        if self._began_ns is not None and ts_ns - self._began_ns >= self._interval_ns:
            points = self.drain()
        point = (ts_ns, value)
        if self._began_ns is None:
            self._began_ns = ts_ns
        self._low = point if self._low is None or value < self._low[1] else self._low
        self._high = point if self._high is None or value > self._high[1] else self._high
        self._last = point
        return points

    def drain(self) -> list[tuple[int, float]]:
        """Return what was taken since the last points, and begin a new interval."""
        taken = sorted({p for p in (self._low, self._high, self._last) if p is not None})
        self._began_ns = self._low = self._high = self._last = None
        points = []
        for ts_ns, value in taken:
            if value != self._recorded:
                points.append((ts_ns, value))
                self._recorded = value
        return points


@dataclass
class ReplicaGauges:
    """The gauges of one replica, summed over its data-parallel engines.

    `kv_cache_usage` (0 to 1) is that of the fullest engine. `preemptions` counts from the
    start of the process.
    """

    lane: str
    interval_ns: int = field(default_factory=sample_interval_ns)
    preemptions: int = 0

    def __post_init__(self) -> None:
        self._engines: dict[int, tuple[int, int, float]] = {}
        self._usage = Envelope(self.interval_ns)
        self._hits = HitRate(self.interval_ns)
        self._counted: tuple[int | None, ...] = ()

    def update(self, rec: TraceWriter, engine: int, scheduler: Any, iteration: Any) -> None:
        """Take one record of vLLM's `SchedulerStats` and `IterationStats` (either may be None)."""
        now_ns = rec.now_ns()
        if iteration is not None and iteration.num_preempted_reqs:
            self.preemptions += iteration.num_preempted_reqs
        if scheduler is not None:
            waiting = scheduler.num_waiting_reqs
            waiting += getattr(scheduler, "num_skipped_waiting_reqs", 0)
            state = (scheduler.num_running_reqs, waiting, float(scheduler.kv_cache_usage))
            self._engines[engine] = state
            usage = max(state[2] for state in self._engines.values())
            self._record_usage(rec, self._usage.add(now_ns, usage))
            self._record_hits(rec, now_ns, getattr(scheduler, "prefix_cache_stats", None))
        self._record_counts(rec, now_ns)

    def drained(self, rec: TraceWriter) -> None:
        """The engines were emptied (all requests aborted): no further statistics will say so."""
        self._engines = dict.fromkeys(self._engines, (0, 0, 0.0))
        self._record_counts(rec, rec.now_ns())

    def _record_counts(self, rec: TraceWriter, ts_ns: int) -> None:
        counted = (
            self.preemptions,
            sum(state[0] for state in self._engines.values()) if self._engines else None,
            sum(state[1] for state in self._engines.values()) if self._engines else None,
        )
        if counted == self._counted:
            return
        self._counted = counted
        names = ("preemptions", "running_requests", "waiting_requests")
        record_changes(rec, self.lane, dict(zip(names, counted, strict=True)), ts_ns=ts_ns)
        if counted[1] == 0:  # an idle engine reports nothing that would end the interval
            self._record_usage(rec, self._usage.drain())

    def _record_usage(self, rec: TraceWriter, points: list[tuple[int, float]]) -> None:
        for ts_ns, value in points:
            rec.counter("kv_cache_usage", value, lane=self.lane, ts_ns=ts_ns)

    def _record_hits(self, rec: TraceWriter, now_ns: int, stats: Any) -> None:
        rate = self._hits.add(now_ns, stats)
        if rate is not None:
            rec.counter("prefix_cache_hit_rate", rate, lane=self.lane, ts_ns=now_ns)


_replicas: dict[str, ReplicaGauges] = {}
_lane: str | None = None


def set_lane(lane: str) -> None:
    """Name the lane of the replica that this process serves."""
    global _lane
    _lane = lane


def gauges(lane: str) -> ReplicaGauges:
    """Return the gauges of a replica of this process."""
    if lane not in _replicas:
        _replicas[lane] = ReplicaGauges(lane)
    return _replicas[lane]


class StatLogger:
    """A vLLM stat logger for one engine; an error of ours stays here, it would end the engine."""

    def __init__(self, engine_index: int) -> None:
        self._engine = engine_index

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        """Take the statistics of an engine step (called by vLLM)."""
        began = time.perf_counter_ns()
        rec = wrap.recorder()
        if rec is None or _lane is None:
            return
        try:
            gauges(_lane).update(rec, self._engine, scheduler_stats, iteration_stats)
        except Exception as error:
            wrap.failed(rec, HOOK_NAME, error)
        rec.add_hook_time(time.perf_counter_ns() - began)

    def log(self) -> None:
        """Nothing is printed."""

    def log_engine_initialized(self) -> None:
        """Nothing is printed."""

    def record_sleep_state(self, *_: Any, **__: Any) -> None:
        """Sleeping is recorded by the server's hooks."""


def stat_logger(_: Any, engine_index: int = 0) -> StatLogger:
    """Make the stat logger of one engine (vLLM's `PerEngineStatLoggerFactory`)."""
    global stats_active
    stats_active = True
    return StatLogger(engine_index)


def add_stat_logger(call: Call) -> None:
    """Hand our stat logger to the engine; vLLM then keeps statistics even if logging is off."""
    if len(call.args) > _STAT_LOGGERS_AT:  # what is given by position cannot be replaced
        raise ValueError("`stat_loggers` was given by position")
    given = call.kwargs.get("stat_loggers")
    call.kwargs["stat_loggers"] = [*(given or ()), stat_logger]


def drop_prometheus(call: Call) -> None:
    """Where the user turned statistics off, keep vLLM from exporting them for our sake."""
    manager = call.obj
    if call.error is None and call.kwargs.get("enable_default_loggers") is False:
        manager.stat_loggers = [
            logger
            for logger in manager.stat_loggers
            if type(logger).__name__ != "PrometheusStatLogger"
        ]


HOOKS = (
    Hook(
        name=HOOK_NAME,
        module="vllm.v1.engine.async_llm",
        target="AsyncLLM.__init__",
        records=(
            "counters running_requests, waiting_requests, kv_cache_usage, preemptions, "
            "prefix_cache_hit_rate"
        ),
        enter=add_stat_logger,
        needs=("stat_loggers",),
    ),
    Hook(
        name="vllm.no_prometheus",
        module="vllm.v1.metrics.loggers",
        target="StatLoggerManager.__init__",
        records="nothing: keeps the cost of vllm.engine_stats down",
        exit=drop_prometheus,
        needs=("enable_default_loggers",),
    ),
)
