"""fully_async: the queue of groups between rollouter and trainer, in its own actor.

Counters on lane `message_queue`: `queue_depth` and the totals `queue_produced`,
`queue_consumed`, `queue_dropped`, in groups (one group is `rollout.n` trajectories), after
every put and get. As in verl's own figures the end signal counts as one. Groups that the full
queue pushes out, and those left in it at the end, write their trajectories' fates.
"""

from __future__ import annotations

import os
import re
from collections import deque
from typing import Any
from weakref import WeakKeyDictionary

from rlinsight.collectors.verl.gauges import record_changes
from rlinsight.collectors.verl.hooks import FULLY_ASYNC, Call, Hook
from rlinsight.trace.topology import Lane

_MODULE = "verl.experimental.fully_async_policy.message_queue"
LANE = "message_queue"
#: The part of a pickled sample after its tensors: id, epoch and a few statistics.
_TAIL_BYTES = 1 << 14

#: Group uid (None: unknown) of each entry of a queue, oldest first.
_contents: WeakKeyDictionary[Any, deque[str | None]] = WeakKeyDictionary()


def declare(call: Call) -> None:
    """The queue exists."""
    call.rec.lane = LANE
    call.rec.declare_lane(Lane(LANE, role="queue", node=call.rec.node, pid=os.getpid()))


def group_uid(sample: Any) -> str | None:
    """Return the group uid of a pickled `RolloutSample`, without unpickling it.

    The queue's process has no use for the tensors inside; the sample's id stands near the
    end of the pickle, after the name of its field.
    """
    if not isinstance(sample, bytes):
        return None
    _, field, after = sample[-_TAIL_BYTES:].rpartition(b"sample_id")
    found = re.search(rb"sample_\d+_\d+", after) if field else None
    return None if found is None else f"uid_{found.group().decode()}"


def was_put(call: Call) -> None:
    """A group was put in; verl answers False when it pushed out the oldest for it."""
    if call.error is not None:
        return
    known = _entries(call.obj)
    if call.result is False and known:
        _fate(call, known.popleft(), "dropped_stale")
    known.append(group_uid(call.arg(0, "sample")))
    _counters(call)


def was_got(call: Call) -> None:
    """The trainer took the oldest group."""
    known = _entries(call.obj)
    if call.result is not None and known:
        known.popleft()
    _counters(call)


def cleared(call: Call) -> None:
    """The queue is about to be emptied, at the end of the run: nobody will train these."""
    known = _entries(call.obj)
    while known:
        _fate(call, known.popleft(), "unconsumed")


def counted(call: Call) -> None:
    """The depth after clearing."""
    _counters(call)


def _entries(queue: Any) -> deque[str | None]:
    return _contents.setdefault(queue, deque())


def _fate(call: Call, group: str | None, fate: str) -> None:
    """Write the fate of a group's trajectories."""
    if group is None:
        return
    for number in range(call.obj.config.actor_rollout_ref.rollout.n):
        call.rec.sample(sample_uid=f"{group}/{number}", group_uid=group, fate=fate)


def _counters(call: Call) -> None:
    queue = call.obj
    values = {
        "queue_depth": len(queue.queue),
        "queue_produced": queue.total_produced,
        "queue_consumed": queue.total_consumed,
        "queue_dropped": queue.dropped_samples,
    }
    record_changes(call.rec, LANE, values, ts_ns=call.end_ns)


def _hook(name: str, method: str, records: str, **callbacks: Any) -> Hook:
    target = f"MessageQueue.{method}"
    return Hook(f"queue.{name}", _MODULE, target, records, modes=FULLY_ASYNC, **callbacks)


HOOKS = (
    _hook("lane", "__init__", "topology: lane message_queue", exit=declare),
    _hook("put", "put_sample", "queue counters; samples dropped_stale", exit=was_put),
    _hook("get", "get_sample", "queue counters", exit=was_got),
    _hook("clear", "clear_queue", "samples unconsumed", enter=cleared, exit=counted),
)
