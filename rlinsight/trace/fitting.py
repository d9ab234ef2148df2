"""JSON into dataclasses: a value that is not what its field declares is refused by name."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from functools import cache
from math import isfinite
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

#: Whole numbers are times, counts and numbers of things: what a column of a table can hold.
_INT64: Final = range(-(2**63), 2**63)
_WORDS: Final[Mapping[Any, str]] = {
    int: "a whole number of 64 bits", float: "a finite number", str: "text", bool: "true or false",
    type(None): "null",
}  # fmt: skip
_SHOWN: Final = 60


def fitting(cls: Any, data: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return what `data` says of the fields of `cls`, nulls and unknown keys left out.

    Fields in `without` are left to the caller. Raises ValueError for anything but an object
    and for a value of another type than the field's.
    """
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object for a {cls.__name__.lower()}, found {_cut(data)}")
    found: dict[str, Any] = {}
    for name, hint in _hints(cls).items():
        value = data.get(name)
        if value is None or name in without:
            continue
        if not _fits(value, hint):
            about = f"`{name}` of a {cls.__name__.lower()}"
            raise ValueError(f"expected {about} to be {_words(hint)}, found {_cut(value)}")
        found[name] = value
    return found


def misfit(cls: Any, name: str, value: Any) -> str | None:
    """Return what a field of `cls` takes and what was found, None where `value` fits."""
    hint = _hints(cls)[name]
    return None if _fits(value, hint) else f"{_words(hint)}, found {_cut(value)}"


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _fits(value: Any, hint: Any) -> bool:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is Literal:
        return isinstance(value, str) and value in args
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and value in _INT64
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if origin is None:
        return isinstance(value, hint)
    if issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_fits(each, args[1]) for each in value.values())
    return isinstance(value, list) and all(_fits(each, args[0]) for each in value)


def _words(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(arg) for arg in args)
    if origin is Literal:
        return "one of " + ", ".join(f"`{arg}`" for arg in args)
    if origin is None:
        return _WORDS.get(hint, "anything")
    if issubclass(origin, Mapping):
        return f"an object, each value {_words(args[1])}"
    return f"a list, each item {_words(args[0])}"


def _cut(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
