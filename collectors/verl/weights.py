"""Weight synchronization as the trainer drives it, stage by stage.

Stages are spans `other:weight_sync.<stage>` inside the span `weight_sync`; their durations
are also on the marker `param_sync`, from which on the replicas named there hold the version.
Each replica acknowledges the version on its own lane (see `rollout`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlinsight.collectors.verl.hooks import Call, Hook
from rlinsight.collectors.verl.phases import begin_phase, end_phase
from rlinsight.collectors.verl.position import DRIVER_LANE, position
from rlinsight.trace.intervals import OpenSpan

_BASE = "verl.checkpoint_engine.base"


@dataclass
class _Sync:
    """A weight sync that is under way."""

    version: int | None
    durations_s: dict[str, float] = field(default_factory=dict)
    transfer: OpenSpan | None = None
    transfer_start_ns: int = 0

    def finish(self, stage: str, start_ns: int, end_ns: int) -> None:
        """Add the duration of a stage that ended."""
        spent = (end_ns - start_ns) / 1e9
        self.durations_s[f"{stage}_s"] = self.durations_s.get(f"{stage}_s", 0.0) + spent


#: The sync under way of each manager, by identity: one manager for hybrid, one for standalone.
_running: dict[int, _Sync] = {}


def _update_enter(call: Call) -> None:
    version = call.arg(0, "global_steps")
    _running[id(call.obj)] = _Sync(None if version is None else int(version))
    # Inside verl's own timer, a mode switch or a validation this is a part, not the phase.
    activity = "other:weight_sync.total" if position.in_phase else "weight_sync"
    begin_phase(call, activity, {"backend": call.obj.backend, **_replicas(call.obj)})


def _update_exit(call: Call) -> None:
    sync = _running.pop(id(call.obj), None)
    if call.error is None and sync is not None:
        if sync.version is not None:
            position.param_version = sync.version
        _live(call, sync)
    end_phase(call)


def _live(call: Call, sync: _Sync) -> None:
    total = {"total_s": ((call.end_ns or 0) - call.start_ns) / 1e9}
    call.rec.marker(
        "param_sync",
        lane=DRIVER_LANE,
        param_version=sync.version,
        ts_ns=call.end_ns,
        attrs={
            "step": position.step,
            "backend": call.obj.backend,
            **_replicas(call.obj),
            **sync.durations_s,
            **total,
        },
    )


def _replicas(manager: Any) -> dict[str, object]:
    """Count a manager's replicas per engine kind: their number is not that of rollouters."""
    kinds = [replica.rollout_mode.value for replica in manager.replicas]
    counts = {f"{kind}_replicas": kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return {"replicas": ",".join(str(r.replica_rank) for r in manager.replicas), **counts}


def _stage(stage: str) -> Callable[[Call], None]:
    def enter(call: Call) -> None:
        sync = _running.get(id(call.obj))
        if sync is not None:
            _end_transfer(sync, call.start_ns)
        prefix = "other:" if sync is None else "other:weight_sync."
        span = call.rec.begin(
            f"{prefix}{stage}",
            start_ns=call.start_ns,
            lane=DRIVER_LANE,
            step=position.step,
            param_version=position.param_version,
            attrs=_replicas(call.obj),
        )
        call.state = (stage, sync, span)

    return enter


def _stage_exit(call: Call) -> None:
    if call.state is None:
        return
    stage, sync, span = call.state
    attrs = {} if call.error is None else {"error": type(call.error).__name__}
    span.end(end_ns=call.end_ns, attrs=attrs)
    if sync is not None:
        sync.finish(stage, call.start_ns, call.end_ns or call.start_ns)


def _built_exit(call: Call) -> None:
    """The group stands: what follows, up to the next stage, is the transfer itself."""
    _stage_exit(call)
    sync = _running.get(id(call.obj))
    if sync is None or call.error is not None or call.end_ns is None:
        return
    sync.transfer_start_ns = call.end_ns
    sync.transfer = call.rec.begin(
        "other:weight_sync.transfer",
        start_ns=call.end_ns,
        lane=DRIVER_LANE,
        step=position.step,
        param_version=sync.version,
    )


def _end_transfer(sync: _Sync, end_ns: int) -> None:
    if sync.transfer is not None:
        sync.transfer.end(end_ns=end_ns)
        sync.transfer = None
        sync.finish("transfer", sync.transfer_start_ns, end_ns)


def _stage_hook(
    method: str, stage: str, records: str, leave: Callable[[Call], None] = _stage_exit
) -> Hook:
    return Hook(
        name=f"weights.{stage}",
        module=_BASE,
        target=f"CheckpointEngineManager.{method}",
        records=records,
        enter=_stage(stage),
        exit=leave,
    )


HOOKS = (
    Hook(
        name="weights.sync",
        module=_BASE,
        target="CheckpointEngineManager.update_weights",
        records="a whole weight sync; marker param_sync with the version and each stage's time",
        enter=_update_enter,
        exit=_update_exit,
        needs=("global_steps",),
    ),
    _stage_hook("abort_replicas", "abort", "aborting the replicas' requests"),
    _stage_hook(
        "build_process_group", "build_group", "connecting trainer and replicas", _built_exit
    ),
    _stage_hook("release_kv_cache_replicas", "release_kv_cache", "freeing the KV caches"),
    _stage_hook("resume_kv_cache_replicas", "resume_kv_cache", "restoring the KV caches"),
    _stage_hook("resume_generation_replicas", "resume", "letting the replicas generate again"),
    _stage_hook("sleep_replicas", "sleep", "putting the replicas to sleep"),
    _stage_hook("wake_up_replicas", "wake", "waking the replicas up"),
)
