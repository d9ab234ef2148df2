"""Which verl module a mode starts, and with which Hydra overrides."""

from __future__ import annotations

import math
from typing import Any, Final, Protocol

from rlinsight.runs.config import DISAGGREGATED, EXAMPLE, DeviceName, RunConfig
from rlinsight.runs.overrides import Overrides, Quoted


class Known(Protocol):
    """Overrides, or the settings that verl makes of them."""

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""


_MAIN_PPO: Final = "verl.trainer.main_ppo"
_FULLY_ASYNC: Final = "verl.experimental.fully_async_policy.fully_async_main"

#: The checkpoint engine that carries weights between separate devices.
#: On Ascend, verl registers HCCL under this name.
_WEIGHT_TRANSPORT: Final[dict[DeviceName, str]] = {"cuda": "nccl", "npu": "nccl"}

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"

SMOKE_PROMPTS: Final = 8
SMOKE_RESPONSES: Final = 4
SMOKE_STEPS: Final = 3
#: Two local updates for one weight sync: the shortest cycle that has a middle.
_SMOKE_SYNC_STEP: Final = 2


def entry_module(config: RunConfig) -> str:
    """Return the Python module that runs the mode."""
    if config.entry:
        return config.entry
    return _FULLY_ASYNC if config.mode == "fully_async" else _MAIN_PPO


def build(
    config: RunConfig, platform: list[str] | None = None, extra: dict[str, Any] | None = None
) -> Overrides:
    """Return all overrides of a run.

    Later wins: the mode's own with what else the run asks for (`extra`), then the platform's
    (`platform`, in `key=value` form), then the user's, then `steps`, then the smoke run's sizes.
    """
    result = Overrides(_common(config))
    result.update(_of_mode(config) | (extra or {}))
    result.update_arguments(platform or [])
    result.update(config.overrides)
    if config.steps is not None:
        result.update(_steps(config, result, config.steps))
    if config.smoke:
        result.update(_smoke(config, result))
    return result


def _common(config: RunConfig) -> dict[str, Any]:
    values: dict[str, Any] = {
        "trainer.nnodes": config.resources.trainer.nodes,
        "trainer.n_gpus_per_node": config.resources.trainer.devices_per_node,
        "trainer.device": config.device,
        "trainer.logger": ["console", "file"],
        "trainer.project_name": "rlinsight",
        "trainer.experiment_name": Quoted(config.name),
        "actor_rollout_ref.rollout.name": "vllm",
        # verl's default is a model on the disk of its authors; a critic starts as the actor does.
        "critic.model.path": "${actor_rollout_ref.model.path}",
    }
    if config.model != EXAMPLE:
        values["actor_rollout_ref.model.path"] = config.model
    if config.data != EXAMPLE:
        values["data.train_files"] = config.data.train
        values["data.val_files"] = config.data.val
    return values


def _of_mode(config: RunConfig) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if config.mode in DISAGGREGATED and config.device in _WEIGHT_TRANSPORT:
        backend = _WEIGHT_TRANSPORT[config.device]
        values[f"{_ROLLOUT}.checkpoint_engine.backend"] = backend
    if config.mode == "fully_async":
        return values | _fully_async(config)
    values["trainer.v1.trainer_mode"] = config.mode
    if config.mode == "separate_async":
        values |= _rollout_pool(config, _ROLLOUT)
    return values


def _fully_async(config: RunConfig) -> dict[str, Any]:
    # One prompt at a time is produced, and the trainer takes what it needs from a queue:
    # verl wants the batch size of the data loader to say so.
    return {
        "data.train_batch_size": 0,
        "data.gen_batch_size": 1,
        "actor_rollout_ref.hybrid_engine": False,
        **_rollout_pool(config, "rollout"),
    }


def _rollout_pool(config: RunConfig, section: str) -> dict[str, Any]:
    pool = config.resources.rollout
    assert pool is not None  # the configuration refuses these modes without it
    return {f"{section}.nnodes": pool.nodes, f"{section}.n_gpus_per_node": pool.devices_per_node}


def _steps(config: RunConfig, known: Overrides, steps: int) -> dict[str, Any]:
    samples = samples_per_version(known) if config.mode == "fully_async" else 1
    return {length_key(config): steps * samples}


def length_key(config: RunConfig) -> str:
    """Return the setting by which verl ends a run: steps, in fully_async prompts."""
    is_counted_in_prompts = config.mode == "fully_async"
    return (
        "rollout.total_rollout_steps" if is_counted_in_prompts else "trainer.total_training_steps"
    )


def samples_per_version(known: Known) -> int:
    """Prompts that fully_async trains between two parameter versions."""
    mini_batch = known.get(f"{_ACTOR}.ppo_mini_batch_size")
    batches = known.get("async_training.require_batches")
    trigger = known.get("async_training.trigger_parameter_sync_step")
    # verl's defaults: fully_async_ppo_trainer.yaml and actor.yaml.
    defaults = (256, 1, 4)
    found = (mini_batch, batches, trigger)
    return math.prod(int(d if v is None else v) for v, d in zip(found, defaults, strict=True))


def smoke_prompts(trainer_devices: int) -> int:
    """Prompts per batch of a smoke run: 8, or the next multiple that every rank gets a share of.

    Half a batch is a mini-batch, and its responses must divide by the trainer's ranks.
    """
    per_mini_batch = SMOKE_PROMPTS * SMOKE_RESPONSES // _SMOKE_SYNC_STEP
    repeat = trainer_devices // math.gcd(per_mini_batch, trainer_devices)
    return SMOKE_PROMPTS * repeat


def _smoke(config: RunConfig, known: Overrides) -> dict[str, Any]:
    prompts = smoke_prompts(config.resources.trainer.devices)
    mini_batch = prompts // _SMOKE_SYNC_STEP
    values: dict[str, Any] = {
        f"{_ROLLOUT}.n": SMOKE_RESPONSES,
        f"{_ACTOR}.ppo_mini_batch_size": mini_batch,
        "data.val_max_samples": SMOKE_PROMPTS,
        "trainer.val_before_train": False,
        "trainer.test_freq": 2,
        "trainer.save_freq": -1,
        "trainer.resume_mode": "disable",
        **_smoke_micro_batches(known, mini_batch * SMOKE_RESPONSES, config),
        **_smoke_cycle(config, prompts),
    }
    steps = min(config.steps or SMOKE_STEPS, SMOKE_STEPS)
    return values | _steps(config, Overrides(values), steps)


def _smoke_cycle(config: RunConfig, prompts: int) -> dict[str, Any]:
    if config.mode == "fully_async":
        return {
            "async_training.require_batches": 1,
            "async_training.trigger_parameter_sync_step": _SMOKE_SYNC_STEP,
        }
    values: dict[str, Any] = {"data.train_batch_size": prompts, "data.gen_batch_size": None}
    if config.mode == "separate_async":
        values["trainer.v1.separate_async.parameter_sync_step"] = _SMOKE_SYNC_STEP
    return values


def _smoke_micro_batches(known: Overrides, sequences: int, config: RunConfig) -> dict[str, Any]:
    """A micro-batch that was sized for the real batch need not divide the small one."""
    per_rank = max(1, sequences // config.resources.trainer.devices)
    keys = (
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
        "critic.ppo_micro_batch_size_per_gpu",
    )
    given = {key: known.get(key) for key in keys}
    return {
        key: math.gcd(per_rank, int(value)) for key, value in given.items() if value is not None
    }
