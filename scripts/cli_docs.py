"""Writes the reference of the command line, docs/cli.md, from the commands themselves.

usage: python scripts/cli_docs.py docs/cli.md
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.models import ArgumentInfo, OptionInfo

from rlinsight.cli import COMMANDS, app

_HEAD = """\
# The command line

<!-- Written by scripts/cli_docs.py (`make docs`) from the commands; edit their docstrings. -->

Exit codes: 0 ok; 1 a finding, or a run that failed; 2 wrong usage or unusable input; 130
interrupted. `run` exits as the training did (128 + n where signal n ended it), `check` with 2 also
where a metric that may fail the build could not be judged.

An error is one sentence on standard error. With `--json`, standard output holds nothing but the
result. Elsewhere names of more than 256 characters are cut to their first 80, with their length;
JSON keeps them whole. In a narrow terminal tables wrap, first prose, then headings, then long
names; no number is cut, and a column that only explains is left out. The last line of a command's
output is the next one to type. Every command has `-h`, `--help`.
"""


#: A page that a docstring names by its path in the repository.
_PAGE = re.compile(r"\bdocs/(\w+\.md)")


class Parameter(NamedTuple):
    """An argument or option: the names it is given by, kind of value, default, what it does."""

    is_argument: bool
    names: tuple[str, ...]
    value: str
    default: str
    help: str


def commands() -> dict[str, Callable[..., Any]]:
    """Return the functions of the subcommands by name, those of a group as `group command`."""
    found = {c.name: c.callback for c in app.registered_commands if c.name and c.callback}
    for group in app.registered_groups:
        for command in group.typer_instance.registered_commands if group.typer_instance else ():
            if command.callback is not None:
                name = command.name or command.callback.__name__
                found[f"{group.name} {name}"] = command.callback
    order = list(COMMANDS)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0].split()[0])))


def reference() -> str:
    """Return the text of docs/cli.md."""
    parts = [_HEAD]
    if app.registered_callback is not None and app.registered_callback.callback is not None:
        rows = parameters(app.registered_callback.callback)
        parts += ["## rlinsight\n", f"{app.info.help}\n", _table(rows)]
    for name, function in commands().items():
        parts += _command(name, function)
    return "\n".join(parts)


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the arguments and options of a command."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if hints[name] is typer.Context:
            continue
        kind, info = typing.get_args(hints[name])[:2]
        if isinstance(info, ArgumentInfo):
            word = name.upper() + ("..." if "list" in str(kind) else "")
            is_optional = parameter.default is not inspect.Parameter.empty
            names: tuple[str, ...] = (f"[{word}]" if is_optional else word,)
        else:
            # In `Annotated`, typer takes the first name for the default.
            given = [
                *([info.default] if isinstance(info.default, str) else []),
                *(info.param_decls or ()),
            ]
            names = tuple(given) or (f"--{name.replace('_', '-')}",)
        value = _value(kind) if isinstance(info, OptionInfo) else ""
        default = _default(parameter.default)
        found.append(
            Parameter(isinstance(info, ArgumentInfo), names, value, default, info.help or "")
        )
    return found


def _default(value: Any) -> str:
    """Return a default as one would type it; empty where leaving it out gives nothing."""
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, bool):
        return "on" if value else ""
    return "" if value in (None, "") else f"`{value}`"


def _value(kind: Any) -> str:
    is_union = typing.get_origin(kind) in (types.UnionType, typing.Union)
    options = typing.get_args(kind) if is_union else (kind,)
    kind = next(option for option in options if option is not types.NoneType)
    if typing.get_origin(kind) is list:
        return f"{_value(typing.get_args(kind)[0])}, repeatable"
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    return {bool: "", str: "text", Path: "path", int: "integer", float: "number"}[kind]


def _command(name: str, function: Callable[..., Any]) -> list[str]:
    rows = parameters(function)
    words = ["rlinsight", name, "[OPTIONS]", *(row.names[0] for row in rows if row.is_argument)]
    help_text = _linked(inspect.cleandoc(function.__doc__ or ""))
    return [f"## rlinsight {name}\n", f"    {' '.join(words)}\n", f"{help_text}\n", _table(rows)]


def _table(rows: Iterable[Parameter]) -> str:
    lines = ["| | value | default | |", "|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: not row.is_argument):
        names = ", ".join(f"`{name}`" for name in row.names)
        text = _linked(" ".join(row.help.split()))
        lines.append(f"| {names} | {row.value} | {row.default} | {text} |")
    return "\n".join(lines) + "\n"


def _linked(text: str) -> str:
    return _PAGE.sub(r"[\1](\1)", text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
