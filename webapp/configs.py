"""Where the configurations of runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

#: Stands where a run has no such key.
ABSENT: Final = "(absent)"


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a nested configuration under dotted keys."""
    return dict(_leaves(config, prefix))


def _leaves(config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys whose values are not the same everywhere, with the value of each run."""
    leaves = [flat(config) for config in configs]
    keys = sorted({key for found in leaves for key in found})
    values = {key: [found.get(key, ABSENT) for found in leaves] for key in keys}
    return {key: row for key, row in values.items() if any(value != row[0] for value in row)}


def knobs(differing: Mapping[str, Sequence[Any]]) -> dict[str, list[float]]:
    """Return those that are a number in every run."""
    return {
        key: [float(value) for value in row]
        for key, row in differing.items()
        if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in row)
    }
