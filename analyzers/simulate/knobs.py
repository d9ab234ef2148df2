"""The settings that a simulated run has: what a user can turn, in verl's own units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, cast

from rlinsight.errors import ConfigError
from rlinsight.trace.fitting import misfit
from rlinsight.trace.topology import Topology

Mode = Literal["sync", "colocate_async", "separate_async", "fully_async"]
Strategy = Literal["drop", "wait"]
MODES: Final[tuple[Mode, ...]] = ("sync", "colocate_async", "separate_async", "fully_async")


@dataclass(frozen=True)
class Knobs:
    """One setting of a run. `docs/simulator.md` says which override of verl each one is.

    `train_batch` and `mini_batch` count prompts; a prompt has `group_size` responses.
    `staleness_threshold` is a fraction of a synchronization cycle (fully_async only);
    `max_off_policy` is in versions, None where versions are not limited (the v1 modes).
    `sync_step` is the number of updates between two weight syncs. `hybrid_replicas` of a
    validation or a switch live on trainer devices; standalone ones on rollout devices.
    `length_scale` multiplies the responses' mean and `length_tail` the spread of their
    logarithms about it: 1 leaves the recorded lengths as they are.
    """

    mode: Mode
    trainer_devices: int = 1
    rollout_devices: int = 0
    tensor_parallel: int = 1
    group_size: int = 8
    mini_batch: int = 16
    train_batch: int = 16
    ppo_epochs: int = 1
    sync_step: int = 1
    max_num_seqs: int = 256
    concurrent_samples: int = 16
    staleness_threshold: float = 0.0
    require_batches: int = 1
    partial_rollout: bool = True
    warm_up_batches: float = 1.0
    max_off_policy: int | None = 8
    off_policy_strategy: Strategy = "drop"
    validation_interval: int | None = None
    validation_samples: int = 1
    trainer_validates: bool = False
    hybrid_engine: bool = True
    hybrid_switch: bool = False
    switch_threshold: float = 0.4
    checkpoint_interval: int | None = None
    max_response_length: int = 1024
    token_budget: int | None = None
    length_scale: float = 1.0
    length_tail: float = 1.0

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise ConfigError(problem)

    @property
    def hybrid_replicas(self) -> int:
        """Return how many replicas live on trainer devices."""
        if self.mode == "fully_async":
            lent = self.trainer_validates
        else:
            lent = self.mode != "separate_async" or self.hybrid_engine
        return self.trainer_devices // self.tensor_parallel if lent else 0

    @property
    def standalone_replicas(self) -> int:
        """Return how many replicas have devices of their own."""
        return self.rollout_devices // self.tensor_parallel

    @property
    def devices(self) -> int:
        """Return all devices of the job."""
        return self.trainer_devices + self.rollout_devices

    @property
    def update_prompts(self) -> int:
        """Return how many prompts one update trains on."""
        if self.mode == "fully_async":
            return self.mini_batch * self.require_batches
        return self.train_batch // self.sync_step

    @property
    def optimizer_steps(self) -> int:
        """Return how many optimizer steps one update makes: one per mini-batch.

        A last mini-batch that is not full is filled up with padding (`_balance_batch` of verl).
        """
        return -(-self.update_prompts // self.mini_batch)

    @property
    def max_required_samples(self) -> int:
        """Return the staleness quota of fully_async, in prompts, as verl truncates it."""
        return int(self.update_prompts * (self.staleness_threshold + 1) * self.sync_step)

    def changed(self, changes: Mapping[str, object]) -> Knobs:
        """Return this setting with `changes`; keys are field names, or verl's overrides.

        A change that another knob must follow takes it along: in the v1 modes the train batch
        is sync step x mini-batch in separate_async, so either moves the train batch. With a
        change of `mode`, the others are knobs of the new one.
        Raises ConfigError for an unknown key or a setting that verl would refuse.
        """
        from rlinsight.analyzers.simulate.overrides import knob_name, mode_after

        mode = mode_after(self.mode, changes)
        named = {knob_name(mode, key): value for key, value in changes.items()}
        for name in ("validation_interval", "checkpoint_interval"):
            value = named.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                named[name] = None  # as verl reads -1
        if "rollout_replicas" in named:
            tp = named.get("tensor_parallel", self.tensor_parallel)
            named["rollout_devices"] = _product(named.pop("rollout_replicas"), tp)
        moved = {"sync_step", "mini_batch"} & named.keys()
        if self.mode == "separate_async" and moved and "train_batch" not in named:
            step = named.get("sync_step", self.sync_step)
            named["train_batch"] = _product(named.get("mini_batch", self.mini_batch), step)
        found = replace(self, **cast("dict[str, Any]", named))
        if moved or "train_batch" in named:
            _check_batches(found)
        return found


def _check_batches(knobs: Knobs) -> None:
    """Raise ConfigError for a train batch that is no cycle of separate_async, or no mini-batch."""
    cycle = knobs.sync_step * knobs.mini_batch
    if knobs.mode == "separate_async" and knobs.train_batch != cycle:
        raise ConfigError(
            f"expected `train_batch` of `sync_step` x `mini_batch` ({cycle}) in separate_async, "
            f"found {knobs.train_batch}; set one of those, and the train batch follows"
        )
    if knobs.mode != "fully_async" and knobs.train_batch < knobs.mini_batch:
        raise ConfigError(
            f"expected `mini_batch` of at most `train_batch` ({knobs.train_batch}), found "
            f"{knobs.mini_batch}"
        )


def _product(value: object, times: object) -> object:
    """Return the product of two numbers; of anything else the value, which is refused then."""
    if isinstance(value, int) and isinstance(times, int):
        return value * times
    return value


KNOB_NAMES: Final = tuple(field.name for field in fields(Knobs) if field.name != "mode")


def knobs_of_run(
    mode: str | None, config: Mapping[str, Any], topology: Topology | None = None
) -> Knobs:
    """Return the setting of a recorded run, from its resolved configuration.

    Numbers of devices are those of the topology where it declares any. Raises ConfigError for
    a mode that is not simulated, and for replicas of more than tensor parallelism.
    """
    if mode not in MODES:
        raise ConfigError(
            f"expected a run in one of the modes {', '.join(MODES)} to simulate, found `{mode}`"
        )
    from rlinsight.analyzers.simulate.read_config import read_config, whole_replicas

    whole_replicas(config)
    values = read_config(mode, config)
    for pool, name in (("trainer", "trainer_devices"), ("rollout", "rollout_devices")):
        count = sum(device.pool == pool for device in topology.devices) if topology else 0
        if count:
            values[name] = count
    return Knobs(mode=mode, **values)


def _problems(knobs: Knobs) -> list[str]:
    found = [
        problem
        for name, value in vars(knobs).items()
        if (problem := out_of_domain(name, value)) is not None
    ]
    if found:
        return found
    for pool in ("trainer_devices", "rollout_devices"):
        count = getattr(knobs, pool)
        replicas = pool == "rollout_devices" or knobs.hybrid_replicas
        if replicas and count % knobs.tensor_parallel:
            found.append(
                f"expected `{pool}` to be a multiple of `tensor_parallel` "
                f"({knobs.tensor_parallel}), found {count}"
            )
    if knobs.mode != "fully_async" and knobs.train_batch % knobs.sync_step:
        found.append(
            f"expected `train_batch` to be a multiple of `sync_step` ({knobs.sync_step}), "
            f"found {knobs.train_batch}"
        )
    if knobs.hybrid_replicas + knobs.standalone_replicas == 0:
        found.append("expected at least one replica that generates, found none")
    if knobs.mode in ("separate_async", "fully_async") and not knobs.standalone_replicas:
        found.append(f"expected `rollout_devices` of at least 1 in {knobs.mode}, found none")
    return found


def out_of_domain(name: str, value: object) -> str | None:
    """Return why no run has this value of a knob, None where one may.

    The number of replicas is that of devices in other words.
    """
    name_of_field = "rollout_devices" if name == "rollout_replicas" else name
    if (problem := misfit(Knobs, name_of_field, value)) is not None:
        return f"expected `{name}` to be {problem}"
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    if name in _POSITIVE and value < 1:
        return f"expected `{name}` of at least 1, found {value}"
    if name in _NOT_NEGATIVE and value < 0:
        return f"expected `{name}` of at least 0, found {value}"
    if name == "length_scale" and not value > 0:
        return f"expected `length_scale` above 0, found {value}"
    if name == "length_tail" and not 0 <= value <= _LONGEST_TAIL:
        return f"expected `length_tail` of 0 to {_LONGEST_TAIL}, found {value}"
    return None


#: Powers of a length: more would overflow.
_LONGEST_TAIL: Final = 50


_POSITIVE: Final = (
    "trainer_devices", "tensor_parallel", "group_size", "mini_batch", "train_batch", "ppo_epochs",
    "sync_step", "max_num_seqs", "concurrent_samples", "require_batches", "validation_samples",
    "max_response_length", "max_off_policy", "token_budget",
)  # fmt: skip
_NOT_NEGATIVE: Final = (
    "rollout_devices", "rollout_replicas", "staleness_threshold", "warm_up_batches",
    "switch_threshold",
)  # fmt: skip
