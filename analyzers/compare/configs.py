"""Where runs were set differently, and whether one variable accounts for all of it.

Configurations count as in the identity of the gate: without what says where things lie or how
long a run is, and with the mode, hardware and software beside them.

**The varied variable.** Several keys may have to move together: `parameter_sync_step` takes the
train batch along, devices of a pool take the number of replicas along. A key is the variable of a
series when it is a number in every run, has three values or more, and every other key that differs
is one-to-one with it, or belongs to the devices of a pool that it is the number of. Worked example:
steps of 1, 2, 4 and batches of 16, 32, 64 are one variable; steps of 1, 2, 4 and mini-batches of 8,
8, 16 are two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlinsight.analyzers.gate.identity import differing, matches
from rlinsight.analyzers.simulate.overrides import OVERRIDES
from rlinsight.errors import did_you_mean

Differences = Mapping[str, tuple[str | None, ...]]

#: Fewer settings than this are a comparison, not a curve.
FEWEST: Final = 3
#: The prefix of configuration keys in an identity.
_CONFIG: Final = "config."
#: A pool's devices, which several keys of verl make together.
_POOLS: Final = ("hardware.rollouter", "hardware.trainer")
_OF_POOLS: Final = ("hardware.*", "*nnodes", "*n_gpus_per_node")
#: Keys that verl wants to follow others: the last to be taken for what was varied.
_FOLLOWERS: Final = ("data.train_batch_size", "data.gen_batch_size")
_KNOBS: Final = frozenset(key for keys in OVERRIDES.values() for key in keys.values())
_DEVICES: Final = re.compile(r"(\d+) x \S+")


@dataclass(frozen=True)
class Variable:
    """What a series varies: its key, its value in each run, and the keys that move with it."""

    key: str
    values: tuple[float, ...]
    along: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rsplit(".", 1)[-1]


def differences(identities: Sequence[Mapping[str, str]]) -> dict[str, tuple[str | None, ...]]:
    """Return key -> value in each run (None: absent) of the keys that are not the same.

    Mode, hardware and software come first; keys of the configuration are as verl has them.
    """
    keys: dict[str, None] = {}
    for other in identities[1:]:
        keys |= dict.fromkeys(differing(identities[0], other))
    ordered = sorted(keys, key=lambda key: (key.startswith(_CONFIG), key))
    return {key.removeprefix(_CONFIG): tuple(one.get(key) for one in identities) for key in ordered}


def numeric(found: Differences) -> dict[str, tuple[float, ...]]:
    """Return the keys that are a number in every run; of devices it is how many there are."""
    numbers = {key: tuple(_number(value) for value in row) for key, row in found.items()}
    return {
        key: tuple(value for value in row if value is not None)
        for key, row in numbers.items()
        if all(value is not None for value in row)
    }


def variable(found: Differences, wanted: str | None = None) -> Variable | str:
    """Return what the runs vary, or in a sentence why they are no series.

    `wanted` is a key, or its last part: that one, whatever else differs.
    """
    if len(set(found.get("mode", ()))) > 1:
        return "runs of different modes are no series of one variable"
    numbers = numeric(found)
    if wanted is not None:
        return _wanted(wanted, found, numbers)
    many = {key: row for key, row in numbers.items() if len(set(row)) >= FEWEST}
    if not many:
        return f"no number takes {FEWEST} values or more"
    whole = [key for key in many if not _independent(key, many[key], found)]
    if not whole:
        fewest = min(many, key=lambda key: len(_independent(key, many[key], found)))
        others = _independent(fewest, many[fewest], found)
        return f"not one variable alone: beside {fewest}, {_listed(others)} vary on their own"
    key = min(whole, key=_rank)
    return Variable(key, many[key], tuple(other for other in found if other != key))


def unknown_variable(wanted: str, identities: Sequence[Mapping[str, str]]) -> str | None:
    """Return that no run has such a key, None where one has; `wanted` is a key or its last part."""
    keys = dict.fromkeys(key.removeprefix(_CONFIG) for one in identities for key in one)
    if any(_is(wanted, key) for key in keys):
        return None
    near = did_you_mean(wanted, sorted(keys, key=_rank))
    return f"expected a key of the runs' settings as `--knob`, found `{wanted}`{near}"


def _is(wanted: str, key: str) -> bool:
    return wanted == key or key.endswith(f".{wanted}")


def _wanted(
    wanted: str, found: Differences, numbers: Mapping[str, tuple[float, ...]]
) -> Variable | str:
    fitting = [key for key in numbers if _is(wanted, key)]
    if not fitting:
        known = ", ".join(numbers) or "none"
        return f"`{wanted}` is no number that differs between these runs ({known} do)"
    key = min(fitting, key=_rank)
    return Variable(key, numbers[key], tuple(other for other in found if other != key))


def _independent(key: str, values: Sequence[float], found: Differences) -> list[str]:
    """Return the other keys that vary in another way than `key`."""
    return [
        other
        for other, row in found.items()
        if other != key
        and not (len(set(zip(values, row, strict=True))) == len(set(values)) == len(set(row)))
        and not (key in _POOLS and matches(other, _OF_POOLS))
    ]


def _rank(key: str) -> tuple[int, str]:
    """A pool's devices first, then knobs, then what is no knob, then what only follows."""
    if key in _POOLS:
        return 0, key
    if matches(key, _FOLLOWERS):
        return 3, key
    return (1 if key in _KNOBS else 2), key


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    devices = _DEVICES.fullmatch(text)
    try:
        value = float(devices[1] if devices else text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
