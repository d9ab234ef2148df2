"""What the launcher adds to a run on emulated devices: environment variables and overrides."""

from __future__ import annotations

import os
from typing import Final

from rlinsight.errors import ConfigError
from rlinsight.runs.config import DISAGGREGATED, RunConfig
from rlinsight.runs.cpu.launch import RAY, THREADS
from rlinsight.runs.emulated.lengths import resolved
from rlinsight.runs.emulated.setup import VARIABLE, PoolSize, Setup
from rlinsight.trace import run_clock

#: The module that verl imports in every process of the run.
PLUGIN: Final = "rlinsight.runs.emulated.plugin"
WEIGHT_ENGINE_MODULE: Final = "rlinsight.runs.emulated.weights"
WEIGHT_ENGINE: Final = "rlinsight_emulated"

#: What the actors that verl starts beside its workers ask for: 10 each for the fully
#: asynchronous trainer and rollouter, 2 for their queue, 1 for everything else.
_LOGICAL_CPUS: Final = 48
_MOST_AGENT_WORKERS: Final = 4
_OBJECT_STORE_BYTES: Final = 2_000_000_000

_ROLLOUT: Final = "actor_rollout_ref.rollout"


def environment(config: RunConfig) -> dict[str, str]:
    """Return the environment of every process of the run; the run's clock starts now.

    Raises ConfigError where response lengths shall come from a trace that cannot be read.
    """
    cost, resources = config.emulated, config.resources
    pools = {
        name: PoolSize(devices=pool.devices, per_node=pool.devices_per_node)
        for name, pool in (("trainer", resources.trainer), ("rollout", resources.rollout))
        if pool is not None
    }
    cost = cost.model_copy(update={"lengths": resolved(cost.lengths)})
    return {
        **_VERL,
        **RAY,
        **THREADS,
        VARIABLE: Setup(cost=cost, **pools).model_dump_json(),
        run_clock.VARIABLE: run_clock.emulated(cost.time_scale).to_text(),
    }


def overrides(config: RunConfig, *, joins: str | None) -> list[str]:
    """Return the Hydra overrides; `joins` is the Ray cluster that the run would use.

    Raises ConfigError where there is one: its workers would not have our environment, and
    its devices are real.
    """
    if joins is not None:
        raise ConfigError(
            f"`device: emulated` starts a Ray of its own, found a cluster at {joins}; unset "
            "`ray_address` and RAY_ADDRESS, or stop the cluster"
        )
    result = [
        *_COMMON,
        f"{_ROLLOUT}.agent.num_workers={_agent_workers()}",
        f"++ray_kwargs.ray_init.num_gpus={config.resources.total_devices}",
    ]
    if config.mode in DISAGGREGATED:
        result += [
            f"{_ROLLOUT}.checkpoint_engine.backend={WEIGHT_ENGINE}",
            f"{_ROLLOUT}.checkpoint_engine.custom_backend_module={WEIGHT_ENGINE_MODULE}",
        ]
    return result


def _agent_workers() -> int:
    """Return how many processes run agent loops, which take most of the CPU: 1 on two cores."""
    return max(1, min(_MOST_AGENT_WORKERS, (os.cpu_count() or 1) // 2))


_VERL: Final = {
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": PLUGIN,
    "TORCHDYNAMO_DISABLE": "1",
}

_COMMON: Final = (
    "trainer.device=cpu",
    "actor_rollout_ref.actor.strategy=emulated",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    f"{_ROLLOUT}.name=emulated",
    # Each of these is a process that imports verl; the emulation needs one of each.
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "data.dataloader_num_workers=0",
    f"ray_kwargs.ray_init.num_cpus={_LOGICAL_CPUS}",
    "++ray_kwargs.ray_init.include_dashboard=False",
    f"++ray_kwargs.ray_init.object_store_memory={_OBJECT_STORE_BYTES}",
)
