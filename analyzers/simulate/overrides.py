"""Which override of verl 0.9.1 each knob is, per mode, and the overrides that change a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from rlinsight.analyzers.config import setting
from rlinsight.analyzers.simulate.knobs import KNOB_NAMES, Knobs, Mode
from rlinsight.analyzers.simulate.placement import Shape, placed
from rlinsight.errors import ConfigError, did_you_mean

ACTOR: Final = "actor_rollout_ref.actor"
ROLLOUT: Final = "actor_rollout_ref.rollout"

_COMMON: Final[dict[str, str]] = {
    "tensor_parallel": f"{ROLLOUT}.tensor_model_parallel_size",
    "mini_batch": f"{ACTOR}.ppo_mini_batch_size",
    "ppo_epochs": f"{ACTOR}.ppo_epochs",
    "validation_samples": f"{ROLLOUT}.val_kwargs.n",
    "max_num_seqs": f"{ROLLOUT}.max_num_seqs",
    "checkpoint_interval": "trainer.save_freq",
    "max_response_length": "data.max_response_length",
    "token_budget": f"{ACTOR}.ppo_max_token_len_per_gpu",
}
_V1: Final[dict[str, str]] = {
    **_COMMON,
    "group_size": f"{ROLLOUT}.n",
    "train_batch": "data.train_batch_size",
    "validation_interval": "trainer.test_freq",
    "max_off_policy": "trainer.v1.sampler.max_off_policy_threshold",
    "off_policy_strategy": "trainer.v1.sampler.max_off_policy_strategy",
}
_SEPARATE: Final = "trainer.v1.separate_async"
_ASYNC: Final = "async_training"

#: Knob name to verl's key. A knob that is missing from a mode does not exist in it.
OVERRIDES: Final[dict[Mode, dict[str, str]]] = {
    "sync": {
        name: key
        for name, key in _V1.items()
        if name not in ("max_off_policy", "off_policy_strategy")
    },
    "colocate_async": {
        **_V1,
        "warm_up_batches": "trainer.v1.colocate_async.num_warmup_batches",
    },
    "separate_async": {
        **_V1,
        "sync_step": f"{_SEPARATE}.parameter_sync_step",
        "warm_up_batches": f"{_SEPARATE}.num_warmup_batches",
        "hybrid_engine": "actor_rollout_ref.hybrid_engine",
        "hybrid_switch": f"{_SEPARATE}.hybrid_rollout.enable_switch",
        "switch_threshold": f"{_SEPARATE}.hybrid_rollout.switch_threshold_ratio",
    },
    "fully_async": {
        **_COMMON,
        "group_size": "rollout.n",
        "sync_step": f"{_ASYNC}.trigger_parameter_sync_step",
        "concurrent_samples": f"{_ASYNC}.concurrent_samples_per_replica",
        "staleness_threshold": f"{_ASYNC}.staleness_threshold",
        "require_batches": f"{_ASYNC}.require_batches",
        "partial_rollout": f"{_ASYNC}.partial_rollout",
        "validation_interval": "trainer.test_freq",
        "trainer_validates": f"{_ASYNC}.use_trainer_do_validate",
    },
}

#: Devices are nodes x devices of a node in verl: (nodes, devices per node) of each pool.
NODES: Final[dict[Mode, dict[str, tuple[str, str]]]] = {
    mode: {
        "trainer_devices": ("trainer.nnodes", "trainer.n_gpus_per_node"),
        **(
            {}
            if mode in ("sync", "colocate_async")
            else {
                "rollout_devices": (
                    "rollout.nnodes" if mode == "fully_async" else f"{ROLLOUT}.nnodes",
                    "rollout.n_gpus_per_node"
                    if mode == "fully_async"
                    else f"{ROLLOUT}.n_gpus_per_node",
                )
            }
        ),
    }
    for mode in OVERRIDES
}

#: Knobs of the simulator that are a property of the work, not a key of verl.
WORKLOAD_KNOBS: Final = ("length_scale", "length_tail")
#: Derived: whole replicas of `tensor_parallel` devices each.
REPLICAS: Final = "rollout_replicas"
#: The mode itself, which the modes that share the devices of one pool can change between.
MODE: Final = "mode"
_MODE_OVERRIDE: Final = "trainer.v1.trainer_mode"
#: Modes that share the devices of one pool, so that a run can change between them.
SAME_DEVICES: Final[tuple[Mode, ...]] = ("sync", "colocate_async")


def mode_after(mode: Mode, changes: Mapping[str, object]) -> Mode:
    """Return the mode that `changes` of a run in `mode` lead to.

    Raises ConfigError for one that is no mode, or that needs other devices: its costs are not in
    the recorded run.
    """
    wanted = next((changes[key] for key in (MODE, _MODE_OVERRIDE) if key in changes), mode)
    for possible in SAME_DEVICES if mode in SAME_DEVICES else (mode,):
        if wanted == possible:
            return possible
    known = " or ".join(f"`{one}`" for one in SAME_DEVICES)
    raise ConfigError(
        f"expected `{MODE}` to go from one of {known} to the other, which have the same devices, "
        f"found `{mode}` to `{wanted}`; record a run in that mode and `compare` the two"
    )


def knob_name(mode: Mode, key: str) -> str:
    """Return the knob that `key` (a knob, or an override of verl) sets in `mode`.

    Raises ConfigError for a key that is neither, or that this mode does not have.
    """
    if key in (MODE, _MODE_OVERRIDE):
        return MODE
    by_override = {override: name for name, override in OVERRIDES[mode].items()}
    name = by_override.get(key, key)
    if name in OVERRIDES[mode] or name in NODES[mode] or name in WORKLOAD_KNOBS:
        return name
    if name == REPLICAS and "rollout_devices" in NODES[mode]:
        return name
    reason = f"a knob of {mode}" if name in KNOB_NAMES else "a knob of the simulator"
    names = sorted(_names(mode))
    near = did_you_mean(key, [*names, *OVERRIDES[mode].values()])
    raise ConfigError(f"expected {reason} ({', '.join(names)}), found `{key}`{near}")


def override(mode: Mode, name: str, value: object) -> str | None:
    """Return the exact override that sets a knob, None for one that no single key sets."""
    key = _MODE_OVERRIDE if name == MODE else OVERRIDES[mode].get(name)
    if key is None:
        return None
    return f"{key}={_text(name, value)}"


def train_batch_override(after: Knobs, changed: Collection[str]) -> tuple[str, ...]:
    """Return the override of the train batch that follows from a change of separate_async's cycle.

    verl refuses another than `sync_step` x `mini_batch`. `changed` names the knobs that are given.
    """
    cycle = {"sync_step", "mini_batch"} & set(changed)
    if after.mode != "separate_async" or not cycle or "train_batch" in changed:
        return ()
    return (f"{OVERRIDES[after.mode]['train_batch']}={after.train_batch}",)


def pool_overrides(
    mode: Mode, devices: Mapping[str, int], config: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the overrides that give the pools (`trainer_devices`, ...) so many devices.

    Nodes and devices per node are chosen together, so that the nodes of the run have room for both
    pools (`placement.placed`). Raises ConfigError where there are none.

    Worked example: 4 nodes of 8 devices, 16 wanted: `nnodes=2`. One node of 8, 6 wanted:
    `nnodes=1 n_gpus_per_node=6`. 4 nodes of 8, 20 wanted for replicas of 4: `nnodes=5
    n_gpus_per_node=4`, since 4 nodes of 5 would break replicas.
    """
    now = {pool: shape for pool in NODES[mode] if (shape := _shape(mode, pool, config))}
    replica = setting(config, _COMMON["tensor_parallel"])
    groups = {"rollout_devices": replica} if isinstance(replica, int) and replica > 0 else {}
    found = placed(now, {pool: n for pool, n in devices.items() if pool in now}, groups)
    texts: list[str] = []
    for pool, count in devices.items():
        nodes_key, per_node_key = NODES[mode][pool]
        shape = found.get(pool, Shape(1, count))
        texts.append(f"{nodes_key}={shape.nodes}")
        if pool not in now or shape.per_node != now[pool].per_node:
            texts.append(f"{per_node_key}={shape.per_node}")
    return tuple(texts)


def _shape(mode: Mode, pool: str, config: Mapping[str, Any]) -> Shape | None:
    """Return the nodes and devices per node of a pool, None where the configuration lacks them."""
    nodes, per_node = (setting(config, key) for key in NODES[mode][pool])
    if not (isinstance(per_node, int) and per_node > 0):
        return None
    return Shape(nodes if isinstance(nodes, int) and nodes > 0 else 1, per_node)


def knobs_of_mode(knobs: Knobs) -> list[tuple[str, object, str]]:
    """Return (knob, present value, what sets it in verl) of every knob of the mode."""
    rows: list[tuple[str, object, str]] = []
    if knobs.mode in SAME_DEVICES:
        rows.append((MODE, knobs.mode, _MODE_OVERRIDE))
    for name, keys in NODES[knobs.mode].items():
        rows.append((name, getattr(knobs, name), " x ".join(keys)))
    if "rollout_devices" in NODES[knobs.mode]:
        rows.append((REPLICAS, knobs.standalone_replicas, "rollout_devices / tensor_parallel"))
    rows += [(name, getattr(knobs, name), key) for name, key in OVERRIDES[knobs.mode].items()]
    return rows + [(name, getattr(knobs, name), "the workload") for name in WORKLOAD_KNOBS]


def _names(mode: Mode) -> set[str]:
    derived = {REPLICAS} if "rollout_devices" in NODES[mode] else set()
    modes = {MODE} if mode in SAME_DEVICES else set()
    return {*OVERRIDES[mode], *NODES[mode], *WORKLOAD_KNOBS, *derived, *modes}


def _text(name: str, value: object) -> str:
    if value is None:
        return "-1" if name.endswith("_interval") else "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
