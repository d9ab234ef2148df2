"""Phases of the driver: how verl's timers are named in the trace, and the spans around them."""

from __future__ import annotations

from rlinsight.collectors.verl.hooks import Call
from rlinsight.collectors.verl.position import DRIVER_LANE, position

#: verl's timer keys, of the v1 and the fully asynchronous trainer, in the trace's vocabulary.
TIMER_ACTIVITY = {
    "step": "step",
    "gen": "wait_samples",
    "switch_wait": "wait_samples",
    "wait_for_enough_samples": "wait_samples",
    "reward": "reward",
    "old_log_prob": "old_log_prob",
    "ref": "ref_log_prob",
    "values": "values",
    "adv": "advantage",
    "update_critic": "update_critic",
    "update_actor": "update_actor",
    "update_weights": "weight_sync",
    "param_sync": "weight_sync",
    "testing": "validate",
    "save_checkpoint": "checkpoint",
    "switch_to_rollout": "switch_to_rollout",
    "switch_to_trainer": "switch_to_trainer",
}


def begin_phase(call: Call, activity: str, attrs: dict[str, object] | None = None) -> None:
    """Open a span of the driver that `end_phase` closes; a crash leaves it open."""
    known = {"local_step": position.local_step, **(attrs or {})}
    span = call.rec.begin(
        activity,
        start_ns=call.start_ns,
        lane=DRIVER_LANE,
        step=position.step,
        param_version=position.param_version,
        attrs={key: value for key, value in known.items() if value is not None},
    )
    position.enter(activity)
    call.state = (activity, span)


def end_phase(call: Call) -> None:
    """Close what `begin_phase` opened, noting an exception by its class."""
    if call.state is None:
        return
    activity, span = call.state
    position.leave(activity)
    attrs = {} if call.error is None else {"error": type(call.error).__name__}
    version = position.param_version if activity == "weight_sync" else None
    span.end(end_ns=call.end_ns, param_version=version, attrs=attrs)
