"""Every key of `rlinsight analyze --json`, from the type hints of the report: no sample needed.

A place is a path: `pools.*` is each pool, `bubbles[]` each entry of a list.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import sys
import types
import typing
from collections.abc import Iterator

import rlinsight.analyzers
from rlinsight.analyzers.result import Report

_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean"}

Keys = dict[str, dict[str, str]]


def keys() -> Keys:
    """Return place -> key -> JSON type; the empty place is the document itself."""
    found: Keys = {}
    _walk(Report, "", found)
    return _restated(found)


def literals() -> set[str]:
    """Return every value of the closed lists (`Literal`) in the document."""
    return {value for hint in _hints_below(Report, set()) for value in _literal_values(hint)}


def _restated(found: Keys) -> Keys:
    """Apply what `document` renames: the types of its short keys."""
    top = found[""]
    del top["segments"]
    for name in [place for place in found if place.startswith("bubbles")]:
        rows = found.pop(name)
        if name == "bubbles":
            top["mini_batch_s"] = rows["mini_batch_s"]
        elif name == "bubbles.largest[]":
            found["bubbles[]"] = rows
        else:
            found["bubble_totals[]"] = rows
    top |= {
        "bubbles": "list of objects",
        "bubble_totals": "list of objects",
        "alarm": "object or null",
    }
    found["alarm"] = found["liveness.alarms[]"]
    found["staleness"] |= {
        "lag_histogram": "object of integer",
        "dropped_share": "number or null",
        "wasted_tokens": "integer or null",
        "wasted_share": "number or null",
        "coverage_measured": "number or null",
        "coverage_analytic": "number or null",
    }
    return found


def _walk(cls: type, place: str, found: Keys) -> None:
    mine = found.setdefault(place, {})
    for name, hint in _fields(cls):
        mine[name] = _json_type(hint)
        for inner, mark in _classes(hint):
            _walk(inner, f"{place}.{name}{mark}".lstrip("."), found)


def _fields(cls: type) -> Iterator[tuple[str, object]]:
    known = _names() | vars(sys.modules[cls.__module__])
    hints = typing.get_type_hints(cls, globalns=known)
    return ((field.name, hints[field.name]) for field in dataclasses.fields(cls))


@functools.cache
def _names() -> dict[str, object]:
    """Return what type-checking imports of the result modules would have bound."""
    import polars as pl

    found: dict[str, object] = {"pl": pl}
    for module in _modules():
        found |= {n: v for n, v in vars(module).items() if dataclasses.is_dataclass(v)}
    return found


def _modules() -> Iterator[types.ModuleType]:
    package = rlinsight.analyzers
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(info.name)


def _classes(hint: object, mark: str = "") -> Iterator[tuple[type, str]]:
    if dataclasses.is_dataclass(hint):
        yield hint, mark  # type: ignore[misc]
        return
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    inner = {tuple: "[]", dict: ".*"}.get(origin, "")
    for arg in args:
        if arg is not Ellipsis:
            yield from _classes(arg, mark + inner)


def _json_type(hint: object) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]  # type: ignore[index]
    if origin is typing.Literal:
        return _SCALARS[type(args[0])]
    if origin in (typing.Union, types.UnionType):
        return " or ".join(["null" if a is types.NoneType else _json_type(a) for a in args])
    if origin is tuple:
        return f"list of {_plural(_json_type(args[0]))}"
    if origin is dict:
        return f"object of {_json_type(args[1])}"
    return "object"


def _plural(name: str) -> str:
    return " or ".join(f"{part}s" for part in name.split(" or "))


def _hints_below(cls: type, seen: set[type]) -> Iterator[object]:
    if cls in seen:
        return
    seen.add(cls)
    for _, hint in _fields(cls):
        yield hint
        for inner, _ in _classes(hint):
            yield from _hints_below(inner, seen)


def _literal_values(hint: object) -> Iterator[str]:
    if typing.get_origin(hint) is typing.Literal:
        yield from (value for value in typing.get_args(hint) if isinstance(value, str))
    for arg in typing.get_args(hint):
        yield from _literal_values(arg)
