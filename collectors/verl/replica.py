"""The replica around its requests: topology, gate, sleep, weights received, versions.

Runs in the server process; see `rollout` for what appears on the replica's lane.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from rlinsight.collectors.verl import engine
from rlinsight.collectors.verl.actors import actor_name, replica_lane_id, served_model
from rlinsight.collectors.verl.hooks import Call, Hook, span_end
from rlinsight.trace.intervals import OpenSpan
from rlinsight.trace.topology import Lane

_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"

#: Worker methods by which weights reach the engine.
_WEIGHT_METHODS = frozenset(
    {"update_weights_from_ipc", "start_weight_update", "update_verl_delta_weights"}
    | {"finish_weight_update"}
)

_lanes: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
#: The open `paused` span of a lane, and the version when it began.
_paused: dict[str, tuple[OpenSpan, int | None]] = {}


def lane_of(server: Any) -> str:
    """Return the lane of the replica that this server belongs to."""
    lane = _lanes.get(server)
    if lane is None:
        lane = _lanes[server] = replica_lane_id(server.replica_rank, actor_name())
    return lane


def engine_kind(server: Any) -> str:
    """Return `hybrid`, `standalone` or `colocated`."""
    return str(server.rollout_mode.value)


def declare(call: Call) -> None:
    """The server exists: name its lane, devices and capacity.

    Of a replica that spans several nodes each node has a server, which knows its own devices;
    the first has the engine, and its process is that of the lane.
    """
    server = call.obj
    if call.error is not None:
        return
    visible = str(call.arg(8, "cuda_visible_devices") or "").split(",")
    lane = Lane(
        lane_of(server),
        role="replica",
        devices=tuple(f"{call.rec.node}/{name.strip()}" for name in visible if name.strip()),
        engine_kind=server.rollout_mode.value,
        replica=server.replica_rank,
        model=served_model(actor_name()),
    )
    if server.node_rank == 0:
        lane = _of_engine(call, server, lane)
    call.rec.declare_lane(lane)


def _of_engine(call: Call, server: Any, lane: Lane) -> Lane:
    """Return the lane with what only the server that has the engine knows."""
    engine.set_lane(lane.id)
    call.rec.lane = lane.id
    capacity = server.config.max_num_seqs * getattr(server.config, "data_parallel_size", 1)
    return replace(lane, capacity=capacity, node=call.rec.node, pid=os.getpid())


def gate_closed(call: Call) -> None:
    """Admission stops; what runs is about to be aborted."""
    server = call.obj
    lane = lane_of(server)
    if server.node_rank != 0 or lane in _paused:
        return
    attrs = {"rejects": bool(call.arg(1, "reject_request", default=False))}
    span = call.rec.begin("paused", lane=lane, start_ns=call.start_ns, attrs=attrs)
    _paused[lane] = (span, server.global_steps)


def aborted(call: Call) -> None:
    """All running requests were aborted and the engine is empty."""
    if call.obj.node_rank != 0 or call.error is not None:
        return
    lane = lane_of(call.obj)
    call.rec.marker(
        "abort",
        lane=lane,
        param_version=call.obj.global_steps,
        attrs={
            "aborted_requests": call.result["aborted_count"],
            "rejects": bool(call.arg(1, "reject_request", default=False)),
        },
        ts_ns=call.end_ns,
    )
    if engine.stats_active:
        engine.gauges(lane).drained(call.rec)


def gate_opened(call: Call) -> None:
    """Requests are admitted again; a version that changed meanwhile was the reason to pause."""
    span, version = _paused.pop(lane_of(call.obj), (None, None))
    if span is None:
        return
    now = call.obj.global_steps
    attrs = {"reason": "weight_sync"} if now != version else None
    span.end(end_ns=call.end_ns, param_version=now, attrs=attrs)


def version_set(call: Call) -> None:
    """The replica acknowledges the version whose weights it now holds."""
    if call.error is None and call.obj.node_rank == 0:
        call.rec.marker(
            "param_sync",
            lane=lane_of(call.obj),
            param_version=call.arg(0, "global_steps"),
            ts_ns=call.end_ns,
        )


def weights_begin(call: Call) -> None:
    """The engine begins to receive weights."""
    method = call.arg(0, "method")
    if method in _WEIGHT_METHODS:
        lane = lane_of(call.obj)
        attrs = {"method": method}
        call.state = call.rec.begin("weight_sync", lane=lane, start_ns=call.start_ns, attrs=attrs)


def _sleep_begin(call: Call) -> None:
    _memory_begin(call, "sleep", "all", unmoved="standalone")


def _release_begin(call: Call) -> None:
    _memory_begin(call, "sleep", "kv_cache", unmoved="colocated")


def _wake_begin(call: Call) -> None:
    what = ",".join(call.arg(0, "tags") or ("all",))
    _memory_begin(call, "wake", what, unmoved="standalone")


def _resume_begin(call: Call) -> None:
    _memory_begin(call, "wake", "kv_cache", unmoved="colocated")


def _memory_begin(call: Call, activity: str, what: str, unmoved: str) -> None:
    """Begin a span, unless verl returns at once: for `unmoved` replicas, or nothing to free."""
    server = call.obj
    frees = getattr(server.config, "free_cache_engine", True)
    if server.node_rank == 0 and frees and engine_kind(server) != unmoved:
        attrs = {"what": what}
        lane = lane_of(server)
        call.state = call.rec.begin(activity, lane=lane, start_ns=call.start_ns, attrs=attrs)


def _hook(name: str, method: str, records: str, **callbacks: Any) -> Hook:
    return Hook(f"rollout.{name}", _SERVER, f"vLLMHttpServer.{method}", records, **callbacks)


HOOKS = (
    _hook("server", "__init__", "topology: the replica's lane", exit=declare),
    _hook(
        "abort",
        "abort_all_requests",
        "replica spans paused (begin), markers abort with the number aborted",
        enter=gate_closed,
        exit=aborted,
    ),
    _hook("gate_open", "open_submission_gate", "replica spans paused (end)", exit=gate_opened),
    _hook(
        "param_sync",
        "set_global_steps",
        "markers param_sync: the replica acknowledges a version",
        exit=version_set,
        needs=("global_steps",),
    ),
    _hook(
        "weight_sync",
        "collective_rpc",
        "replica spans weight_sync",
        enter=weights_begin,
        exit=span_end,
        needs=("method",),
    ),
    _hook("sleep", "sleep", "replica spans sleep", enter=_sleep_begin, exit=span_end),
    _hook("wake", "wake_up", "replica spans wake", enter=_wake_begin, exit=span_end),
    _hook(
        "release_kv",
        "release_kv_cache",
        "replica spans sleep (KV cache)",
        enter=_release_begin,
        exit=span_end,
    ),
    _hook(
        "resume_kv",
        "resume_kv_cache",
        "replica spans wake (KV cache)",
        enter=_resume_begin,
        exit=span_end,
    ),
)
