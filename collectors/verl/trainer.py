"""The driver of training: every phase, with step and live parameter version.

One wrapper around verl's `_timer` covers each phase that verl times itself; hooks on the
trainers' methods add what no timer covers.
"""

from __future__ import annotations

from collections.abc import Callable

from rlinsight.collectors.verl import topology
from rlinsight.collectors.verl.hooks import FULLY_ASYNC, V1, Call, Hook
from rlinsight.collectors.verl.phases import TIMER_ACTIVITY, begin_phase, end_phase
from rlinsight.collectors.verl.position import DRIVER_LANE, position

_V1_TRAINER = "verl.trainer.ppo.v1.trainer_base"
_FULLY_ASYNC = "verl.experimental.fully_async_policy.fully_async_trainer"
_DYNAMIC = "verl.experimental.fully_async_policy.dynamic_schedule.dynamic_resource_controller"


def _timer_enter(call: Call) -> None:
    # Agent loops use the same timer, in other processes and with many running at once.
    if not position.is_driver:
        return
    key = str(call.arg(0, "name")).removeprefix("timing_s/")
    activity = TIMER_ACTIVITY.get(key, f"other:{key}")
    begin_phase(call, activity, {} if key == activity else {"timer": key})


def _phase(activity: str) -> Callable[[Call], None]:
    def enter(call: Call) -> None:
        begin_phase(call, activity)

    return enter


def _attach(call: Call) -> None:
    position.attach(call.obj)
    call.rec.lane = DRIVER_LANE
    topology.declare_driver(call.rec)


def _describe(call: Call) -> None:
    if call.error is None:
        topology.describe_run(call.rec, call.obj.config)


def _dispatch_enter(call: Call) -> None:
    begin_phase(call, "other:dispatch_prompts", {"prompts": len(call.arg(0, "batch"))})


def _validate_enter(call: Call) -> None:
    _mark(call, "validate_begin", call.start_ns)
    if "validate" not in position.phases:  # before training verl validates outside its timer
        begin_phase(call, "validate")


def _validate_exit(call: Call) -> None:
    end_phase(call)
    _mark(call, "validate_end", call.end_ns)


def _mark(call: Call, kind: str, ts_ns: int | None) -> None:
    call.rec.marker(
        kind,
        lane=DRIVER_LANE,
        param_version=position.param_version,
        attrs={"step": position.step},
        ts_ns=ts_ns,
    )


def _fit_validate_enter(call: Call) -> None:
    # verl calls this after every update and decides inside; the same condition as there.
    trainer = call.obj
    frequency, version = trainer.config.trainer.test_freq, trainer.current_param_version
    due = frequency > 0 and version > 0 and version % frequency == 0
    if trainer.local_trigger_step == 1 and (due or call.arg(0, "val_before_train", default=False)):
        _validate_enter(call)


def _fit_validate_exit(call: Call) -> None:
    if call.state is not None:
        _validate_exit(call)


def _checkpoint_exit(call: Call) -> None:
    if call.error is None:
        _mark(call, "checkpoint", call.end_ns)


def _sync_enter(call: Call) -> None:
    if call.obj.local_trigger_step == 1:  # else verl returns at once
        begin_phase(call, "other:sync_with_rollouter")
        position.leave("other:sync_with_rollouter")  # the weight sync inside is a phase itself


def _timed(name: str, target: str, activity: str, records: str) -> Hook:
    """Record every call of a trainer's method as a span of `activity`."""
    v1 = name.startswith("trainer.v1.")
    return Hook(
        name=name,
        module=_V1_TRAINER if v1 else _FULLY_ASYNC,
        target=target,
        records=records,
        enter=_phase(activity),
        exit=end_phase,
        modes=V1 if v1 else FULLY_ASYNC,
    )


HOOKS = (
    Hook(
        name="trainer.timer",
        module="verl.utils.profiler.performance",
        target="_timer",
        records="every phase that verl times on the driver, as a span with step and version",
        enter=_timer_enter,
        exit=end_phase,
        needs=("name",),
    ),
    Hook(
        name="trainer.v1.created",
        module=_V1_TRAINER,
        target="PPOTrainer.__init__",
        records="the driver's lane; mode, engine, resolved config and package versions",
        enter=_attach,
        exit=_describe,
        modes=V1,
    ),
    _timed(
        "trainer.v1.init",
        "PPOTrainer.init",
        "init",
        "start-up of workers, rollout servers and the first weight sync",
    ),
    _timed(
        "trainer.v1.load_prompts",
        "PPOTrainer._next_train_batch",
        "other:load_prompts",
        "reading prompts from the data loader, which no timer of verl covers",
    ),
    Hook(
        name="trainer.v1.dispatch_prompts",
        module=_V1_TRAINER,
        target="PPOTrainer._submit_batch_to_rollout",
        records="handing prompts to the agent loops, which no timer of verl covers",
        enter=_dispatch_enter,
        exit=end_phase,
        modes=V1,
        needs=("batch",),
    ),
    _timed(
        "trainer.v1.balance_batch",
        "PPOTrainer._balance_batch",
        "other:balance_batch",
        "balancing a batch over the ranks, which no timer of verl covers",
    ),
    _timed(
        "trainer.v1.metrics",
        "PPOTrainer._compute_metrics",
        "other:compute_metrics",
        "computing the metrics of a step, which no timer of verl covers",
    ),
    Hook(
        name="trainer.v1.validate",
        module=_V1_TRAINER,
        target="PPOTrainer._validate",
        records="markers validate_begin and validate_end; the span of a validation before training",
        enter=_validate_enter,
        exit=_validate_exit,
        modes=V1,
    ),
    Hook(
        name="trainer.v1.checkpoint",
        module=_V1_TRAINER,
        target="PPOTrainer._save_checkpoint",
        records="marker checkpoint",
        exit=_checkpoint_exit,
        modes=V1,
    ),
    Hook(
        name="trainer.fully_async.created",
        module=_FULLY_ASYNC,
        target="FullyAsyncTrainer.__init__",
        records="the driver's lane; mode, engine, resolved config and package versions",
        enter=_attach,
        exit=_describe,
        modes=FULLY_ASYNC,
    ),
    _timed(
        "trainer.fully_async.init",
        "FullyAsyncTrainer.init_workers",
        "init",
        "start-up of the training workers",
    ),
    _timed(
        "trainer.fully_async.connect",
        "FullyAsyncTrainer.set_rollouter",
        "init",
        "start-up: connecting to the rollouter, putting hybrid replicas to sleep",
    ),
    *(
        Hook(
            name=f"trainer.fully_async.{method}",
            module=_DYNAMIC,
            target=f"DynamicResourceController.{method}_hybrid_replicas",
            records=f"lent trainer devices: span {activity}",
            enter=_phase(activity),
            exit=end_phase,
            modes=FULLY_ASYNC,
        )
        for method, activity in (
            ("activate", "switch_to_rollout"),
            ("deactivate", "switch_to_trainer"),
        )
    ),
    Hook(
        name="trainer.fully_async.sync",
        module=_FULLY_ASYNC,
        target="FullyAsyncTrainer._fit_update_weights",
        records="a parameter sync together with the calls to the rollouter around it",
        enter=_sync_enter,
        exit=end_phase,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="trainer.fully_async.validate",
        module=_FULLY_ASYNC,
        target="FullyAsyncTrainer._fit_validate",
        records="the validation as the driver sees it; markers validate_begin and validate_end",
        enter=_fit_validate_enter,
        exit=_fit_validate_exit,
        modes=FULLY_ASYNC,
        needs=("val_before_train",),
    ),
    Hook(
        name="trainer.fully_async.checkpoint",
        module=_FULLY_ASYNC,
        target="FullyAsyncTrainer._save_checkpoint",
        records="marker checkpoint",
        exit=_checkpoint_exit,
        modes=FULLY_ASYNC,
    ),
)
