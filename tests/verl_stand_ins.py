"""Modules of verl's names with the hooks on them, for tests that need nothing else of verl's."""

from __future__ import annotations

import types
from typing import Any

from rlinsight.collectors.verl import wrap
from rlinsight.collectors.verl.hooks import Hook


def hooked(hooks: tuple[Hook, ...], module: str, **contents: Any) -> Any:
    """A module of verl's name and with `contents` for its targets, all its hooks installed."""
    stand_in = types.ModuleType(module)
    vars(stand_in).update(contents)
    for hook in hooks:
        if hook.module == module and hook.target.split(".")[0] in contents:
            wrap.apply(stand_in, hook)
    return stand_in


def attrs_of(row: dict[str, Any]) -> dict[str, str]:
    return {pair["key"]: pair["value"] for pair in row["attrs"] or ()}
