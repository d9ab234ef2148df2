"""Devices and mode are said in one place: no override may contradict `resources` and `mode`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from rlinsight.runs.checks.facts import Check, Facts, Problem
from rlinsight.runs.config import DISAGGREGATED, Mode, Pool

_ROLLOUT: Final = "actor_rollout_ref.rollout"
_TRAINER_MODE: Final = "trainer.v1.trainer_mode"


def nodes_add_up(facts: Facts) -> Problem | None:
    """`resources.nodes` is the sum of both pools."""
    resources = facts.managed.resources
    if resources.nodes is None or resources.nodes == resources.total_nodes:
        return None
    return Problem(
        f"`resources.nodes` must be {resources.trainer.nodes} trainer + "
        f"{resources.total_nodes - resources.trainer.nodes} rollout nodes = "
        f"{resources.total_nodes}, found {resources.nodes}; change one of the three"
    )


def devices_are_said_once(facts: Facts) -> Problem | None:
    """No override gives verl other nodes, or devices on a node, than `resources`."""
    wrong = [
        f"`resources.{field}` says {said}, the override {key} gives verl {seen}"
        for field, said, key in _numbers(facts)
        if (seen := facts.number(key)) is not None and seen != said
    ]
    if not wrong:
        return None
    return Problem(f"{'; '.join(wrong)}: set them in `resources` only")


def _numbers(facts: Facts) -> Iterator[tuple[str, int, str]]:
    """Yield the field, the number it says, and the key of verl that it becomes."""
    resources, mode = facts.managed.resources, facts.managed.mode
    pools: list[tuple[str, Pool, str]] = [("trainer", resources.trainer, "trainer")]
    if mode in DISAGGREGATED and resources.rollout is not None:
        section = "rollout" if mode == "fully_async" else _ROLLOUT
        pools.append(("rollout", resources.rollout, section))
    for name, pool, section in pools:
        yield f"{name}.nodes", pool.nodes, f"{section}.nnodes"
        yield f"{name}.devices_per_node", pool.devices_per_node, f"{section}.n_gpus_per_node"


def mode_is_said_once(facts: Facts) -> Problem | None:
    """No override makes verl's trainer one of another mode than `mode`; fully_async has its own."""
    mode, seen = facts.managed.mode, facts.settings.get(_TRAINER_MODE)
    # A trainer that the user registered has a name of its own, which contradicts nothing.
    if mode in ("fully_async", seen) or seen not in get_args(Mode):
        return None
    return Problem(
        f"`mode` says {mode}, the override {_TRAINER_MODE} gives verl {seen}: set it in `mode` only"
    )


CHECKS: Final = (
    Check("nodes", nodes_add_up),
    Check("resources", devices_are_said_once),
    Check("mode", mode_is_said_once),
)
