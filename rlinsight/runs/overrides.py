"""Hydra overrides as an ordered mapping, so that a later one replaces an earlier one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_PREFIX = re.compile(r"^(\+\+|\+|~)?(.*)$", re.DOTALL)
# What Hydra's grammar takes without quotes, and means literally.
_PLAIN = re.compile(r"^[A-Za-z0-9_./:@%?|+*~-]+$")
# A string that already is Hydra syntax: a list, a mapping, an interpolation, a quoted string.
_HYDRA_SYNTAX = ("[", "{", "${", "'", '"')


class Overrides:
    """Overrides in order; a key given twice keeps its last value.

    Hydra refuses `+key=1` beside `key=2`. Here the later value wins and the `+` stays, which
    is what a user who overrides a default of ours means.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._prefix: dict[str, str] = {}
        self._value: dict[str, Any] = {}
        self.update(values or {})

    def update(self, values: Mapping[str, Any]) -> None:
        """Add values, keyed by the Hydra key with or without its `+`, `++` or `~`."""
        for key, value in values.items():
            prefix, bare = split_key(key)
            self._prefix[bare] = prefix or self._prefix.get(bare, "")
            self._value[bare] = value

    def update_arguments(self, arguments: Iterable[str]) -> None:
        """Add overrides already in their command-line form, `key=value`."""
        for argument in arguments:
            key, equals, value = argument.partition("=")
            self.update({key: Verbatim(value) if equals else None})

    def get(self, key: str) -> Any:
        """Return the value of a bare key, or None."""
        return self._value.get(key)

    def arguments(self) -> list[str]:
        """Return the command-line form, one argument per key."""
        return [self._argument(bare) for bare in self._value]

    def _argument(self, bare: str) -> str:
        prefix, value = self._prefix[bare], self._value[bare]
        if prefix == "~":
            return f"~{bare}"
        return f"{prefix}{bare}={format_value(value)}"


class Verbatim(str):
    """Text that is Hydra syntax already."""

    __slots__ = ()


class Quoted(str):
    """Text that stays text, also where it looks like a number or a list."""

    __slots__ = ()


def split_key(key: str) -> tuple[str, str]:
    """Return (prefix, bare key) of a Hydra key: `++a.b` is (`++`, `a.b`)."""
    match = _PREFIX.match(key)
    assert match is not None  # the pattern matches everything
    return match.group(1) or "", match.group(2)


def format_value(value: Any) -> str:
    """Return a value in Hydra's grammar; text that would be misread is quoted."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{format_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(format_value(v) for v in value) + "]"
    if isinstance(value, Quoted):
        return _quoted(value)
    text = str(value)
    literal = isinstance(value, Verbatim) or _PLAIN.match(text) or text.startswith(_HYDRA_SYNTAX)
    return text if literal else _quoted(text)


def _quoted(value: str) -> str:
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    return f"'{escaped}'"
