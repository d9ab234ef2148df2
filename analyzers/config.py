"""What the configuration that a run resolved to says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def setting(config: Mapping[str, Any], dotted: str) -> Any:
    """Return a value of a resolved configuration, None where it has no such key."""
    node: Any = config
    for part in dotted.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


def count(config: Mapping[str, Any], dotted: str) -> int | None:
    """Return a setting that counts something, None where it is none: missing, -1, a text."""
    value = setting(config, dotted)
    return value if isinstance(value, int) and value > 0 else None
