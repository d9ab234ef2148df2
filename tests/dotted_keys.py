"""Settings by dotted key, as overrides name them, and nested, as a configuration has them."""

from __future__ import annotations


def nested(overrides: dict) -> dict:
    """Dotted keys as a resolved configuration has them."""
    found: dict = {}
    for key, value in overrides.items():
        *parents, last = key.split(".")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return found
