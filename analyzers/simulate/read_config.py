"""The knobs of a recorded run, read from its resolved configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rlinsight.analyzers.config import setting
from rlinsight.analyzers.simulate.knobs import Mode
from rlinsight.analyzers.simulate.overrides import ACTOR, NODES, OVERRIDES, ROLLOUT, SAME_DEVICES
from rlinsight.errors import ConfigError

#: Switches of verl that the simulation does not know, and what it leaves out.
_UNMODELLED: Final = {
    "async_training.use_dynamic_resource_scheduling": "trainer devices do not generate in between",
    "algorithm.filter_groups.enable": "every prompt that is generated is trained",
}


def read_config(mode: Mode, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs that a resolved configuration of verl sets, by name."""
    # A change of mode keeps the configuration: what only the other mode looks at is read, too.
    keys = OVERRIDES["colocate_async" if mode in SAME_DEVICES else mode]
    values = {name: value for name, key in keys.items()
              if (value := setting(config, key)) is not None}  # fmt: skip
    for name, (nodes, per_node) in NODES[mode].items():
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
    if setting(config, f"{ACTOR}.use_dynamic_bsz") is not True:
        values["token_budget"] = None
    return values


def whole_replicas(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for replicas that are more than one engine of `tensor_parallel` devices.

    verl counts replicas by tensor x data x pipeline parallelism, and by prefill and decode parts
    where those are apart; devices and slots of a replica would be taken for those of several.
    """
    for name in ("data_parallel_size", "pipeline_model_parallel_size"):
        size = setting(config, f"{ROLLOUT}.{name}")
        if isinstance(size, int) and size > 1:
            raise ConfigError(
                f"expected replicas of tensor parallelism alone to simulate, found `{name}` {size}"
            )
    if setting(config, f"{ROLLOUT}.disaggregation.enabled") is True:
        raise ConfigError("expected replicas that prefill and decode to simulate, found them apart")


def unmodelled(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note on each setting of a run that changes its scheduling and is not simulated."""
    return tuple(
        f"`{key}` is on, which is not simulated: {what}"
        for key, what in _UNMODELLED.items()
        if setting(config, key) is True
    )
