"""The settings that `rlinsight whatif` is asked about: from text to knobs and their values.

What cannot be read, is out of a knob's domain, or contradicts itself is refused here, before
anything is simulated. A setting that only this job cannot have stays a row of its sweep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rlinsight.errors import ConfigError

if TYPE_CHECKING:
    from rlinsight.analyzers.simulate.knobs import Mode

#: Knobs that say the same thing in other words.
_SAME: Final = {"rollout_replicas": "rollout_devices"}


@dataclass(frozen=True)
class Settings:
    """What is `fixed` (`--set`) and what is `varied` (`--sweep`), by the names that were given."""

    fixed: dict[str, object]
    varied: dict[str, list[object]]


def settings(mode: Mode, changes: Sequence[str], sweeps: Sequence[str]) -> Settings:
    """Return the settings of `KNOB=VALUE` and `KNOB=A,B,C` for a run in `mode`.

    Raises ConfigError, naming the option, for what is no setting of the mode.
    """
    from rlinsight.analyzers.simulate.overrides import mode_after

    pairs = [_pair(text, "--set", "KNOB=VALUE") for text in changes]
    ranges = [_pair(text, "--sweep", "KNOB=A,B,C") for text in sweeps]
    fixed: dict[str, object] = {key: _value(text) for key, text in pairs}
    _set_once([key for key, _ in pairs], [key for key, _ in ranges], mode_after(mode, fixed))
    varied = {key: _values(key, text) for key, text in ranges}
    for key, values in varied.items():
        for value in values:
            _check(mode, fixed, key, value)
    return Settings(fixed, varied)


def _set_once(fixed: Sequence[str], varied: Sequence[str], mode: Mode) -> None:
    """Raise ConfigError where two options are about one knob, by whatever name."""
    from rlinsight.analyzers.simulate.overrides import knob_name

    seen: dict[str, str] = {}
    given = [("--set", key) for key in fixed] + [("--sweep", key) for key in varied]
    for option, key in given:
        name = knob_name(mode, key)
        about = _SAME.get(name, name)
        if about in seen:
            raise ConfigError(
                f"expected one value or sweep of `{about}`, found {seen[about]} and "
                f"`{option} {key}`; give one of them"
            )
        seen[about] = f"`{option} {key}`"


def _values(key: str, text: str) -> list[object]:
    parts = text.split(",")
    found = [_value(part) for part in parts]
    for place, part in enumerate(parts):
        if not part.strip():
            raise ConfigError(f"expected a value between all commas of `--sweep {key}={text}`")
        if found[place] in found[:place]:
            raise ConfigError(f"expected each value once, found `{part}` twice in `--sweep {key}`")
    return found


def _check(mode: Mode, fixed: Mapping[str, object], key: str, value: object) -> None:
    """Raise ConfigError for a value that no run could have."""
    from rlinsight.analyzers.simulate.knobs import out_of_domain
    from rlinsight.analyzers.simulate.overrides import MODE, knob_name, mode_after

    if knob_name(mode_after(mode, fixed), key) == MODE:
        mode_after(mode, {MODE: value})
        return
    problem = out_of_domain(knob_name(mode_after(mode, fixed), key), value)
    if problem is not None:
        raise ConfigError(f"{problem} in `--sweep {key}`")


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ConfigError(f"expected `{option} {form}`, found `{text}`")
    return name, value


def _value(text: str) -> object:
    """Return a number, true, false, or null as what it is, and anything else as text."""
    if text in ("None", "none"):
        return None
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false", "null") else text)
    except (ValueError, RecursionError):
        return text
