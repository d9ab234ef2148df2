"""fully_async: the rollouter's quota, its pauses with their reasons, and how each ended.

Runs in the actor of `FullyAsyncRollouter`. verl has no pause() method: its processor asks
`_should_pause_generation`, stops feeding on True, lets running groups finish, and waits until
`reset_staleness` (a parameter sync) or a monitor that looks every 10 s wakes it. The pause
lasts from that answer to the moment the processor asks again.

Lane `rollouter`: spans `paused` (attrs: `reason` staleness_quota or queue_full, the state
that led to it, `idle_start_ns` once the last running group had finished, `resumed_by`),
markers `pause`, `resume` (reason weight_sync, monitor or end) and `lost_resume`, spans
`validate`, markers `validate_begin`, `validate_end`, `feed_end` (no prompts are left).

A resume is lost when the processor pauses on the old count while `reset_staleness` is still
working out the new one: only the monitor ends that pause.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlinsight.collectors.verl.gauges import record_changes
from rlinsight.collectors.verl.hooks import FULLY_ASYNC, Call, Hook
from rlinsight.trace.run_clock import CLOCK
from rlinsight.trace.topology import Lane

if TYPE_CHECKING:
    from rlinsight.trace.intervals import OpenSpan
    from rlinsight.trace.writer import TraceWriter

_MODULE = "verl.experimental.fully_async_policy.fully_async_rollouter"
LANE = "rollouter"


@dataclass
class Pauses:
    """Follows the processor of one rollouter through its pauses."""

    span: OpenSpan | None = None
    queue_size: int | None = None
    resets_running: int = 0
    _reset_since: bool = False
    _began_in_reset: bool = False

    def pause(self, rec: TraceWriter, rollouter: Any, ts_ns: int) -> None:
        """Begin a pause; verl looks at the queue first, so a full queue is the reason then."""
        if self.span is not None:
            return
        reason = "queue_full" if self._queue_full(rollouter) else "staleness_quota"
        state = {
            "reason": reason,
            "staleness_samples": rollouter.staleness_samples,
            "max_required_samples": rollouter.max_required_samples,
            "queue_size": self.queue_size,
            "active_tasks": len(rollouter.active_tasks),
        }
        attrs = {key: value for key, value in state.items() if value is not None}
        self.span = rec.begin("paused", lane=LANE, start_ns=ts_ns, attrs=attrs)
        self._reset_since, self._began_in_reset = False, self.resets_running > 0
        rec.marker("pause", lane=LANE, reason=reason, attrs=attrs, ts_ns=ts_ns)

    def resume(self, rec: TraceWriter, rollouter: Any, ts_ns: int, by: str | None = None) -> None:
        """End the pause, if there is one."""
        if self.span is None:
            return
        by = by or ("weight_sync" if self._reset_since else "monitor")
        attrs: dict[str, object] = {"resumed_by": by}
        idle_start_ns = CLOCK.at(int(rollouter.idle_start_time * 1e9))
        if idle_start_ns >= self.span.start_ns:
            attrs["idle_start_ns"] = idle_start_ns
        self.span.end(end_ns=ts_ns, attrs=attrs)
        self.span = None
        rec.marker("resume", lane=LANE, reason=by, ts_ns=ts_ns)

    def reset_begins(self) -> None:
        """A parameter sync begins to reset the staleness count, and wakes the processor."""
        self.resets_running += 1
        self._reset_since = True

    def reset_ends(self, rec: TraceWriter, rollouter: Any, ts_ns: int) -> None:
        """The new count is known; a pause begun on the old one has missed its resume."""
        self.resets_running -= 1
        within = rollouter.staleness_samples < rollouter.max_required_samples
        if self.span is not None and self._began_in_reset and within:
            rec.marker("lost_resume", lane=LANE, ts_ns=ts_ns)
            self._began_in_reset = False

    def _queue_full(self, rollouter: Any) -> bool:
        limit = rollouter.max_queue_size
        return self.queue_size is not None and limit is not None and self.queue_size >= limit


_pauses = Pauses()


def declare(call: Call) -> None:
    """The rollouter exists."""
    call.rec.lane = LANE
    call.rec.declare_lane(Lane(LANE, role="rollouter", node=call.rec.node, pid=os.getpid()))


def asked(call: Call) -> None:
    """The processor asks only while not paused, the monitor only while paused."""
    call.state = not call.obj.paused
    if call.state:
        _pauses.resume(call.rec, call.obj, call.start_ns)


def answered(call: Call) -> None:
    """True to the processor is the beginning of a pause."""
    if call.state and call.result is True:
        _pauses.pause(call.rec, call.obj, call.end_ns or call.rec.now_ns())
    counters(call)


def queue_seen(call: Call) -> None:
    """The queue's size as verl's own decision sees it."""
    if call.result is not None:
        _pauses.queue_size = call.result["queue_size"]


def reset_begins(_: Call) -> None:
    """A parameter sync resets the staleness count."""
    _pauses.reset_begins()


def reset_ends(call: Call) -> None:
    """The staleness count is reset."""
    _pauses.reset_ends(call.rec, call.obj, call.end_ns or call.rec.now_ns())
    counters(call)


def counters(call: Call) -> None:
    """Record what changed of the rollouter's state (all in groups)."""
    rollouter = call.obj
    values = {
        "staleness_samples": rollouter.staleness_samples,
        "max_required_samples": rollouter.max_required_samples,
        "active_tasks": len(rollouter.active_tasks),
        "max_concurrent_samples": rollouter.max_concurrent_samples,
        "pending_queue": rollouter.pending_queue.qsize(),
        "generated_samples": rollouter.total_generated_samples,
        "dropped_stale_samples": rollouter.dropped_stale_samples,
    }
    record_changes(call.rec, LANE, values, ts_ns=call.end_ns)


def feed_ends(call: Call) -> None:
    """The last prompt was handed to the processor: from here on there is nothing to start."""
    if call.error is None:
        call.rec.marker("feed_end", lane=LANE, ts_ns=call.end_ns)


def fit_ends(call: Call) -> None:
    """The rollouter is done."""
    _pauses.resume(call.rec, call.obj, call.end_ns or call.rec.now_ns(), by="end")
    counters(call)


def validate_begins(call: Call) -> None:
    """Validation takes the rollouter's replicas."""
    call.state = call.rec.begin("validate", lane=LANE, start_ns=call.start_ns)
    call.rec.marker("validate_begin", lane=LANE, ts_ns=call.start_ns)


def validate_ends(call: Call) -> None:
    """Validation is over."""
    call.state.end(end_ns=call.end_ns)
    call.rec.marker("validate_end", lane=LANE, ts_ns=call.end_ns)


def _hook(name: str, method: str, records: str, **callbacks: Any) -> Hook:
    target = f"FullyAsyncRollouter.{method}"
    return Hook(f"rollouter.{name}", _MODULE, target, records, modes=FULLY_ASYNC, **callbacks)


_COUNTERS = "counters of quota, active tasks and pending prompts"

HOOKS = (
    _hook("lane", "__init__", "topology: lane rollouter", exit=declare),
    _hook(
        "pause",
        "_should_pause_generation",
        "spans paused with their reason, markers pause and resume",
        enter=asked,
        exit=answered,
    ),
    _hook(
        "reset_staleness",
        "reset_staleness",
        "markers resume (weight_sync) and lost_resume",
        enter=reset_begins,
        exit=reset_ends,
    ),
    Hook(
        name="rollouter.queue_size",
        module="verl.experimental.fully_async_policy.message_queue",
        target="MessageQueueClient.get_statistics",
        records="nothing: the queue size behind a pause",
        exit=queue_seen,
        modes=FULLY_ASYNC,
    ),
    _hook("active", "_record_active_count", _COUNTERS, exit=counters),
    _hook("quota", "set_max_required_samples", _COUNTERS, exit=counters),
    _hook("sample", "_process_single_sample_streaming", _COUNTERS, exit=counters),
    _hook("feed", "_feed_samples", "markers feed_end", exit=feed_ends),
    _hook("fit", "fit", "the end of a pause that lasts to the end", exit=fit_ends),
    _hook(
        "validate",
        "do_validate",
        "spans validate, markers validate_begin and validate_end",
        enter=validate_begins,
        exit=validate_ends,
    ),
)
