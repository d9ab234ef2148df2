"""Hybrid replicas changing sides: markers `mode_switch` on the lane of each such replica.

Attributes `from` and `to` are `trainer` or `rollout` (`from` is `init` at start-up), `by` the
method of verl that did it. The trainer's time for a switch is a span of the trainer's lane;
here is the moment at which it took effect. Also markers `balancer` (replicas added to or
removed from request routing), `rebalance` and `dynamic_resource`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from rlinsight.collectors.verl.hooks import (
    COLOCATE_ASYNC,
    FULLY_ASYNC,
    SEPARATE_ASYNC,
    SYNC,
    Call,
    Hook,
)
from rlinsight.collectors.verl.position import position

_V1 = "verl.trainer.ppo.v1"
_SEPARATE = f"{_V1}.trainer_separate_async"
_FULLY_ASYNC = "verl.experimental.fully_async_policy"
_ROLLOUTER = f"{_FULLY_ASYNC}.fully_async_rollouter"
_DYNAMIC = f"{_FULLY_ASYNC}.dynamic_schedule.dynamic_resource_controller"

#: On which side a colocated trainer's replicas are.
_sides: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def switched(call: Call, replicas: Iterable[Any], source: str, target: str, by: str) -> None:
    """Mark on each replica's lane that it changed sides.

    The version is the one the rollouts hold, as far as this process knows it: the trainer does,
    the rollouter does not.
    """
    for replica in replicas:
        call.rec.marker(
            "mode_switch",
            lane=f"replica{replica.replica_rank}",
            param_version=position.param_version,
            attrs={"from": source, "to": target, "by": by},
            ts_ns=call.end_ns,
        )


# -- v1 trainers ---------------------------------------------------------------------------


def mode_of(trainer: Any) -> str | None:
    """Return the mode of a separate_async trainer's hybrid engine, None before it is set."""
    mode = getattr(trainer, "current_mode", None)
    return None if mode is None else str(getattr(mode, "value", mode)).lower()


def mode_before(call: Call) -> None:
    """Remember the mode: a call may turn out to change nothing."""
    call.state = mode_of(call.obj)


def mode_after(call: Call) -> None:
    """Mark a change of mode of the hybrid engine."""
    after = mode_of(call.obj)
    if call.error is None and after is not None and after != call.state:
        replicas = call.obj.llm_server_manager.rollout_replicas
        switched(call, replicas, call.state or "init", after, "hybrid_rollout")


def to_trainer(call: Call) -> None:
    """A colocated trainer has its batch: the replicas gave their device back."""
    _colocated(call, "trainer")


def to_rollout(call: Call) -> None:
    """A colocated trainer has updated the weights: the replicas generate (again)."""
    _colocated(call, "rollout")


def _colocated(call: Call, target: str) -> None:
    """Mark the switch, unless the replicas are on that side (several updates in one step)."""
    source = _sides.get(call.obj, "init")
    if call.error is None and source != target:
        _sides[call.obj] = target
        switched(call, call.obj.llm_server_manager.rollout_replicas, source, target, "colocated")


def balancer_added(call: Call) -> None:
    """Requests are routed to the hybrid replicas from now on."""
    _balancer(call, "added")


def balancer_removed(call: Call) -> None:
    """No request is routed to the hybrid replicas any more."""
    _balancer(call, "removed")


def _balancer(call: Call, change: str) -> None:
    if call.error is None and call.obj._enable_hybrid_replicas:
        for replica in call.obj.llm_server_manager.rollout_replicas:
            lane = f"replica{replica.replica_rank}"
            call.rec.marker("balancer", lane=lane, reason=change, ts_ns=call.end_ns)


# -- fully_async ---------------------------------------------------------------------------


def replicas_before(call: Call) -> None:
    """Remember which hybrid replicas serve: verl skips those that already do (or do not)."""
    call.state = set(call.obj.llm_server_manager.alive_replicas)


def replicas_after(call: Call) -> None:
    """Mark the hybrid replicas that joined or left the rollout."""
    manager = call.obj.llm_server_manager
    now = set(manager.alive_replicas)
    for change, source, target, by in (
        (now - call.state, "trainer", "rollout", "add_replicas"),
        (call.state - now, "rollout", "trainer", "remove_replicas"),
    ):
        replicas = [manager.hybrid_replicas[name] for name in sorted(change)]
        switched(call, replicas, source, target, by)


def rebalanced(call: Call) -> None:
    """Running requests were aborted and spread over all replicas again."""
    if call.result is not None:
        loads = json.dumps(call.result.get("server_loads"), default=str)
        attrs = {"cleared_entries": call.result.get("cleared_entries"), "server_loads": loads}
        call.rec.marker("rebalance", lane="rollouter", attrs=attrs, ts_ns=call.end_ns)


def activated(call: Call) -> None:
    """The dynamic scheduler lent the trainer's devices to the rollout."""
    _dynamic(call, "activate", call.obj.activate_count)


def deactivated(call: Call) -> None:
    """The dynamic scheduler took the trainer's devices back."""
    _dynamic(call, "deactivate", call.obj.deactivate_count)


def _dynamic(call: Call, reason: str, count: int) -> None:
    if call.error is None and call.end_ns is not None:
        call.rec.marker(
            "dynamic_resource",
            lane="trainer",
            param_version=call.arg(0, "global_steps"),
            reason=reason,
            attrs={"count": count, "duration_ns": call.end_ns - call.start_ns},
            ts_ns=call.end_ns,
        )


def _separate(name: str, method: str, records: str, **callbacks: Any) -> Hook:
    target = f"PPOTrainerSeparateAsync.{method}"
    return Hook(f"switch.{name}", _SEPARATE, target, records, modes=SEPARATE_ASYNC, **callbacks)


_SWITCH = "markers mode_switch"

HOOKS = (
    _separate("setup", "_setup", _SWITCH, enter=mode_before, exit=mode_after),
    _separate("to_rollout", "switch_to_rollout", _SWITCH, enter=mode_before, exit=mode_after),
    _separate("to_trainer", "switch_to_trainer", _SWITCH, enter=mode_before, exit=mode_after),
    _separate("add", "add_replicas_to_balancer", "markers balancer", exit=balancer_added),
    _separate("remove", "remove_replicas_from_balancer", "markers balancer", exit=balancer_removed),
    *(
        Hook(f"switch.{mode}.{name}", module, f"{cls}.{method}", _SWITCH, exit=exit_, modes=modes)
        for mode, module, cls, modes in (
            ("sync", f"{_V1}.trainer_sync", "PPOTrainerSync", SYNC),
            (
                "colocate_async",
                f"{_V1}.trainer_colocate_async",
                "PPOTrainerColocateAsync",
                COLOCATE_ASYNC,
            ),
        )
        for name, method, exit_ in (
            ("init", "on_init_end", to_rollout),
            ("to_trainer", "on_sample_end", to_trainer),
            ("to_rollout", "on_step_end", to_rollout),
        )
    ),
    Hook(
        name="switch.add_replicas",
        module=_ROLLOUTER,
        target="FullyAsyncRollouter.add_replicas",
        records=_SWITCH,
        enter=replicas_before,
        exit=replicas_after,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="switch.remove_replicas",
        module=_ROLLOUTER,
        target="FullyAsyncRollouter.remove_replicas",
        records=_SWITCH,
        enter=replicas_before,
        exit=replicas_after,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="switch.rebalance",
        module=_ROLLOUTER,
        target="FullyAsyncRollouter.rebalance_requests",
        records="markers rebalance",
        exit=rebalanced,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="switch.activate",
        module=_DYNAMIC,
        target="DynamicResourceController.activate_hybrid_replicas",
        records="markers dynamic_resource",
        exit=activated,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="switch.deactivate",
        module=_DYNAMIC,
        target="DynamicResourceController.deactivate_hybrid_replicas",
        records="markers dynamic_resource",
        exit=deactivated,
        modes=FULLY_ASYNC,
    ),
)
