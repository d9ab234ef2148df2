"""A finding's overrides put into a run's configuration, and what of it they change."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

from rlinsight.errors import ConfigError
from rlinsight.runs.overrides import split_key

Document = dict[str, Any]

#: Overrides that `resources` and `mode` of the configuration set: (pool, field).
_POOLS: Final[Mapping[str, tuple[str, str]]] = {
    "trainer.nnodes": ("trainer", "nodes"),
    "trainer.n_gpus_per_node": ("trainer", "devices_per_node"),
    "rollout.nnodes": ("rollout", "nodes"),
    "rollout.n_gpus_per_node": ("rollout", "devices_per_node"),
    "actor_rollout_ref.rollout.nnodes": ("rollout", "nodes"),
    "actor_rollout_ref.rollout.n_gpus_per_node": ("rollout", "devices_per_node"),
}
_MODE: Final = "trainer.v1.trainer_mode"
#: The sum of the nodes of both pools, which follows them.
_SUM: Final = "resources.nodes"
_RESUME: Final = "trainer.resume_mode"


def changed(document: Mapping[str, Any], overrides: Sequence[str]) -> Document:
    """Return `document` with the overrides (`key=value`) applied where each belongs.

    Devices go into `resources`, whose sum follows; the mode into `mode`; all else into
    `overrides`, in place of the same key. What `overrides` says of devices or mode that change is
    dropped, since it would win. Raises ConfigError for text that is no override.
    """
    found: Document = copy.deepcopy(dict(document))
    for text in overrides:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(f"expected an override KEY=VALUE, found `{text}`")
        _set(found, key, yaml.safe_load(value))
    return found


def afresh(document: Mapping[str, Any]) -> Document:
    """Return `document` as a run of a tuning has it: it begins without the training of another.

    All runs share verl's folder of checkpoints, and verl goes on from the latest one there unless
    it is told not to. A configuration that names the checkpoint to begin at (`resume_path`) keeps
    it: then all runs begin there.
    """
    settings = document.get("overrides") or {}
    if any(split_key(one)[1] == _RESUME and settings[one] == "resume_path" for one in settings):
        return copy.deepcopy(dict(document))
    return changed(document, [f"{_RESUME}=disable"])


def held_by(overrides: Iterable[str], held: Sequence[str]) -> str | None:
    """Return the first of the keys in `held` that the overrides (`key=value`) would change.

    A key holds what lies below it, too: `resources` all numbers of devices, `async_training`
    all of that section. Both names of a number of devices hold it: `rollout.nnodes` of verl,
    `resources.rollout.nodes` of the configuration.
    """
    names = [name for text in overrides for name in _names(text.partition("=")[0])]
    if any(name.startswith("resources.") and name.endswith(".nodes") for name in names):
        names.append(_SUM)
    return next((key for key in held if any(_is_below(n, h) for n in names for h in _names(key))),
                None)  # fmt: skip


def place(key: str) -> str:
    """Return where the configuration of a run has what the override `key` sets."""
    bare = split_key(key)[1]
    if bare == _MODE:
        return "mode"
    return ".".join(("resources", *_POOLS[bare])) if bare in _POOLS else bare


#: What a run's configuration has beside `overrides` and the loop may change.
PLACES: Final = (
    "mode", "resources", _SUM, "resources.trainer", "resources.rollout",
    *dict.fromkeys(map(place, _POOLS)),
)  # fmt: skip


def _names(key: str) -> tuple[str, str]:
    return split_key(key)[1], place(key)


def _is_below(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")


def _set(document: Document, key: str, value: Any) -> None:
    bare, settings = split_key(key)[1], document.get("overrides") or {}
    same = [one for one in settings if place(one) == place(bare)]
    if bare not in _POOLS and bare != _MODE:
        document.setdefault("overrides", {})[same[0] if same else key] = value
        return
    for one in same:
        del settings[one]
    if bare == _MODE:
        document["mode"] = value
    else:
        _set_pool(document, *_POOLS[bare], value)


def _set_pool(document: Document, pool: str, name: str, value: Any) -> None:
    resources: dict[str, Any] = document.setdefault("resources", {})
    resources.setdefault(pool, {})[name] = value
    if resources.get("nodes") is not None:
        # A trainer that is left out is one node, rollouts that are left out are none.
        pools = [resources.get("trainer") or {}, resources.get("rollout")]
        resources["nodes"] = sum(one.get("nodes", 1) for one in pools if one is not None)
