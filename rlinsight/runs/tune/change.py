"""A finding's overrides put into a run's configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
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


def changed(document: Mapping[str, Any], overrides: Sequence[str]) -> Document:
    """Return `document` with the overrides (`key=value`) applied where each belongs.

    Devices go into `resources`, whose sum follows; the mode into `mode`; all else into
    `overrides`, in place of the same key. Raises ConfigError for text that is no override.
    """
    found: Document = copy.deepcopy(dict(document))
    for text in overrides:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise ConfigError(f"expected an override KEY=VALUE, found `{text}`")
        _set(found, key, yaml.safe_load(value))
    return found


def _set(document: Document, key: str, value: Any) -> None:
    if key in _POOLS:
        pool, name = _POOLS[key]
        _set_pool(document, pool, name, value)
    elif key == _MODE:
        document["mode"] = value
    else:
        settings: dict[str, Any] = document.setdefault("overrides", {})
        known = next((one for one in settings if split_key(one)[1] == key), key)
        settings[known] = value


def _set_pool(document: Document, pool: str, name: str, value: Any) -> None:
    resources: dict[str, Any] = document.setdefault("resources", {})
    resources.setdefault(pool, {})[name] = value
    if resources.get("nodes") is not None:
        pools = [resources.get(one) for one in ("trainer", "rollout")]
        resources["nodes"] = sum(one.get("nodes", 1) for one in pools if one is not None)
