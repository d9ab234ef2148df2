"""v1 trainers: the replay buffer over the TransferQueue, and what it throws away.

Runs in the driver. Counters on lane `replay_buffer` (validation: `replay_buffer/val`), in
groups: `replay_pending` (not started), `replay_running`, `replay_finished`, `replay_failure`,
and in trajectories `replay_trajectories`, each time the buffer reads the TransferQueue. It
polls, so a wait ends at a multiple of its interval: spans `other:poll` show the sleeps.

Groups evicted from the training partition write their trajectories' fates: stale ones
`dropped_stale`, those without a learning signal `filtered`, failed ones `aborted`, and the
surplus that a synchronous step discards `unconsumed`.
"""

from __future__ import annotations

from typing import Any

from rlinsight.collectors.verl.gauges import record_changes
from rlinsight.collectors.verl.hooks import V1, Call, Hook
from rlinsight.collectors.verl.samples import sample_uid_of_key
from rlinsight.trace.topology import Lane

_MODULE = "verl.trainer.ppo.v1.replay_buffer"
LANE = "replay_buffer"

#: Fates of the groups whose eviction is under way.
_evicting: dict[str, str] = {}


def lane_of(partition: str) -> str:
    """Return the lane of a TransferQueue partition."""
    return LANE if partition == "train" else f"{LANE}/{partition}"


def declare(call: Call) -> None:
    """The buffer exists."""
    for partition in ("train", "val"):
        call.rec.declare_lane(Lane(lane_of(partition), role="queue", node=call.rec.node))


def depths(buffer: Any, partition: str) -> dict[str, float | None]:
    """Return the counts of a partition as the buffer last read them."""
    return {
        "replay_pending": len(buffer.pending_keys.get(partition, ())),
        "replay_running": len(buffer.running_keys.get(partition, ())),
        "replay_finished": len(buffer.finished_keys.get(partition, ())),
        "replay_failure": len(buffer.failure_keys.get(partition, ())),
        "replay_trajectories": len(buffer.partitions.get(partition, ())),
    }


def synced(call: Call) -> None:
    """The buffer has read the TransferQueue."""
    for partition in ("train", "val"):
        values = depths(call.obj, partition)
        record_changes(call.rec, lane_of(partition), values, ts_ns=call.end_ns)


def polled(call: Call) -> None:
    """Not enough samples were there: the buffer slept."""
    partition = str(call.arg(0, "partition_id"))
    end_ns = call.end_ns or call.rec.now_ns()
    call.rec.span("other:poll", lane=lane_of(partition), start_ns=call.start_ns, end_ns=end_ns)


def evicting(call: Call) -> None:
    """Groups are about to be evicted; where several reasons hold, the last one here counts."""
    stale, filtered, failed, *_ = call.arg(2, "eviction_reasons")
    for fate, groups in (("aborted", failed), ("filtered", filtered), ("dropped_stale", stale)):
        _evicting.update(dict.fromkeys(groups, fate))


def evicted(call: Call) -> None:
    """The eviction is done."""
    _evicting.clear()
    if call.result is not None and call.result[0]:
        groups, stale, filtered, _ = call.result
        counts = {"groups": len(groups), "stale": stale, "filtered": filtered}
        lane = lane_of(str(call.arg(1, "partition_id")))
        call.rec.marker("evict", lane=lane, attrs=counts, ts_ns=call.end_ns)


def clearing(call: Call) -> None:
    """Groups are about to leave the buffer untrained."""
    partition, groups = call.arg(0, "partition_id"), call.arg(1, "uids")
    if partition != "train" or not groups:
        return
    for key in call.obj.partitions[partition]:
        sample_uid, group = sample_uid_of_key(key)
        if group in groups:
            fate = _evicting.get(group, "unconsumed")
            call.rec.sample(sample_uid=sample_uid, group_uid=group, fate=fate)


def _hook(name: str, method: str, records: str, **callbacks: Any) -> Hook:
    target = f"ReplayBuffer.{method}"
    return Hook(f"replay.{name}", _MODULE, target, records, modes=V1, **callbacks)


HOOKS = (
    _hook("lane", "__init__", "topology: lane replay_buffer", exit=declare),
    _hook("depth", "_sync_metadata_from_transfer_queue", "replay counters", exit=synced),
    _hook(
        "poll",
        "_wait_for_next_poll",
        "spans other:poll",
        exit=polled,
        needs=("partition_id",),
    ),
    _hook(
        "evict",
        "_evict_terminal_groups",
        "markers evict, fates of evicted samples",
        enter=evicting,
        exit=evicted,
        needs=("eviction_reasons",),
    ),
    _hook(
        "clear",
        "_clear_groups",
        "samples dropped_stale, filtered, aborted or unconsumed",
        enter=clearing,
        needs=("partition_id", "uids"),
    ),
)
