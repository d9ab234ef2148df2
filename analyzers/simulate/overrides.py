"""Which override of verl 0.9.1 each knob is, per mode: to read a run, and to change one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from rlinsight.analyzers.config import setting
from rlinsight.analyzers.simulate.knobs import KNOB_NAMES, Knobs, Mode
from rlinsight.analyzers.simulate.placement import Shape, placed
from rlinsight.errors import ConfigError, did_you_mean

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"

_COMMON: Final[dict[str, str]] = {
    "tensor_parallel": f"{_ROLLOUT}.tensor_model_parallel_size",
    "mini_batch": f"{_ACTOR}.ppo_mini_batch_size",
    "ppo_epochs": f"{_ACTOR}.ppo_epochs",
    "validation_samples": f"{_ROLLOUT}.val_kwargs.n",
    "max_num_seqs": f"{_ROLLOUT}.max_num_seqs",
    "checkpoint_interval": "trainer.save_freq",
    "max_response_length": "data.max_response_length",
    "token_budget": f"{_ACTOR}.ppo_max_token_len_per_gpu",
}
_V1: Final[dict[str, str]] = {
    **_COMMON,
    "group_size": f"{_ROLLOUT}.n",
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
_NODES: Final[dict[Mode, dict[str, tuple[str, str]]]] = {
    mode: {
        "trainer_devices": ("trainer.nnodes", "trainer.n_gpus_per_node"),
        **(
            {}
            if mode in ("sync", "colocate_async")
            else {
                "rollout_devices": (
                    "rollout.nnodes" if mode == "fully_async" else f"{_ROLLOUT}.nnodes",
                    "rollout.n_gpus_per_node"
                    if mode == "fully_async"
                    else f"{_ROLLOUT}.n_gpus_per_node",
                )
            }
        ),
    }
    for mode in OVERRIDES
}

#: Switches of verl that the simulation does not know, and what it leaves out.
_UNMODELLED: Final = {
    f"{_ASYNC}.use_dynamic_resource_scheduling": "trainer devices do not generate in between",
    "algorithm.filter_groups.enable": "every prompt that is generated is trained",
}
#: Knobs of the simulator that are a property of the work, not a key of verl.
WORKLOAD_KNOBS: Final = ("length_scale", "length_tail")
#: Derived: whole replicas of `tensor_parallel` devices each.
REPLICAS: Final = "rollout_replicas"
#: The mode itself, which the modes that share the devices of one pool can change between.
MODE: Final = "mode"
_MODE_OVERRIDE: Final = "trainer.v1.trainer_mode"
_SAME_DEVICES: Final[tuple[Mode, ...]] = ("sync", "colocate_async")


def mode_after(mode: Mode, changes: Mapping[str, object]) -> Mode:
    """Return the mode that `changes` of a run in `mode` lead to.

    Raises ConfigError for one that is no mode, or that needs other devices: its costs are not in
    the recorded run.
    """
    wanted = next((changes[key] for key in (MODE, _MODE_OVERRIDE) if key in changes), mode)
    for possible in _SAME_DEVICES if mode in _SAME_DEVICES else (mode,):
        if wanted == possible:
            return possible
    known = " or ".join(f"`{one}`" for one in _SAME_DEVICES)
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
    if name in OVERRIDES[mode] or name in _NODES[mode] or name in WORKLOAD_KNOBS:
        return name
    if name == REPLICAS and "rollout_devices" in _NODES[mode]:
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
    now = {pool: shape for pool in _NODES[mode] if (shape := _shape(mode, pool, config))}
    replica = setting(config, _COMMON["tensor_parallel"])
    groups = {"rollout_devices": replica} if isinstance(replica, int) and replica > 0 else {}
    found = placed(now, {pool: n for pool, n in devices.items() if pool in now}, groups)
    texts: list[str] = []
    for pool, count in devices.items():
        nodes_key, per_node_key = _NODES[mode][pool]
        shape = found.get(pool, Shape(1, count))
        texts.append(f"{nodes_key}={shape.nodes}")
        if pool not in now or shape.per_node != now[pool].per_node:
            texts.append(f"{per_node_key}={shape.per_node}")
    return tuple(texts)


def _shape(mode: Mode, pool: str, config: Mapping[str, Any]) -> Shape | None:
    """Return the nodes and devices per node of a pool, None where the configuration lacks them."""
    nodes, per_node = (setting(config, key) for key in _NODES[mode][pool])
    if not (isinstance(per_node, int) and per_node > 0):
        return None
    return Shape(nodes if isinstance(nodes, int) and nodes > 0 else 1, per_node)


def knobs_of_mode(knobs: Knobs) -> list[tuple[str, object, str]]:
    """Return (knob, present value, what sets it in verl) of every knob of the mode."""
    rows: list[tuple[str, object, str]] = []
    if knobs.mode in _SAME_DEVICES:
        rows.append((MODE, knobs.mode, _MODE_OVERRIDE))
    for name, keys in _NODES[knobs.mode].items():
        rows.append((name, getattr(knobs, name), " x ".join(keys)))
    if "rollout_devices" in _NODES[knobs.mode]:
        rows.append((REPLICAS, knobs.standalone_replicas, "rollout_devices / tensor_parallel"))
    rows += [(name, getattr(knobs, name), key) for name, key in OVERRIDES[knobs.mode].items()]
    return rows + [(name, getattr(knobs, name), "the workload") for name in WORKLOAD_KNOBS]


def read_config(mode: Mode, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs that a resolved configuration of verl sets, by name."""
    # A change of mode keeps the configuration: what only the other mode looks at is read, too.
    keys = OVERRIDES["colocate_async" if mode in _SAME_DEVICES else mode]
    values = {name: value for name, key in keys.items()
              if (value := setting(config, key)) is not None}  # fmt: skip
    for name, (nodes, per_node) in _NODES[mode].items():
        counts = setting(config, nodes), setting(config, per_node)
        if all(isinstance(count, int) for count in counts):
            values[name] = counts[0] * counts[1]
    if mode != "fully_async" and setting(config, "trainer.v1.sampler") is not None:
        values.setdefault("max_off_policy", None)
    for name in ("validation_interval", "checkpoint_interval"):
        value = values.get(name)
        if value is None or (isinstance(value, int) and value <= 0):
            values[name] = None
    # A fixed number of sequences per micro-batch leaves the token budget unused.
    if setting(config, f"{_ACTOR}.use_dynamic_bsz") is not True:
        values["token_budget"] = None
    return values


def whole_replicas(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for replicas that are more than one engine of `tensor_parallel` devices.

    verl counts replicas by tensor x data x pipeline parallelism, and by prefill and decode parts
    where those are apart; devices and slots of a replica would be taken for those of several.
    """
    for name in ("data_parallel_size", "pipeline_model_parallel_size"):
        size = setting(config, f"{_ROLLOUT}.{name}")
        if isinstance(size, int) and size > 1:
            raise ConfigError(
                f"expected replicas of tensor parallelism alone to simulate, found `{name}` {size}"
            )
    if setting(config, f"{_ROLLOUT}.disaggregation.enabled") is True:
        raise ConfigError("expected replicas that prefill and decode to simulate, found them apart")


def unmodelled(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note on each setting of a run that changes its scheduling and is not simulated."""
    return tuple(
        f"`{key}` is on, which is not simulated: {what}"
        for key, what in _UNMODELLED.items()
        if setting(config, key) is True
    )


def _names(mode: Mode) -> set[str]:
    derived = {REPLICAS} if "rollout_devices" in _NODES[mode] else set()
    modes = {MODE} if mode in _SAME_DEVICES else set()
    return {*OVERRIDES[mode], *_NODES[mode], *WORKLOAD_KNOBS, *derived, *modes}


def _text(name: str, value: object) -> str:
    if value is None:
        return "-1" if name.endswith("_interval") else "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
