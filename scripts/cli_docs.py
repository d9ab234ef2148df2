"""Writes the reference of the command line, docs/cli.md, from the commands themselves.

usage: python scripts/cli_docs.py docs/cli.md
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rlinsight.cli import COMMANDS, app

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = """\
# The command line

<!-- Written by scripts/cli_docs.py (`make docs`) from the commands; edit their docstrings. -->

Exit codes: 0 ok; 1 a finding, or a run that failed; 2 wrong usage or unusable input; 130
interrupted. An error is one sentence on standard error. With `--json`, standard output holds
nothing but the result. The last line of a command's output is the next one to type.
"""


def reference() -> str:
    """Return the text of docs/cli.md."""
    root = typer.main.get_command(app)
    parts = [_HEAD, "## rlinsight\n", _plain(app.info.help), _table(_options(root))]
    for name in COMMANDS:
        parts += _command(name, root.commands[name])  # type: ignore[attr-defined]
    return "\n".join(parts)


def _command(name: str, command: object) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = ["rlinsight", name, "[OPTIONS]", *(_argument(p) for p in arguments)]
    rows = [(f"`{_argument(p)}`", "", p.help) for p in arguments]
    return [
        f"## rlinsight {name}\n",
        f"    {' '.join(words)}\n",
        _plain(command.help),
        _table([*rows, *_options(command)]),
    ]


def _argument(parameter: object) -> str:
    word = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return word if parameter.required else f"[{word}]"


def _options(command: object) -> list[tuple[str, str, str | None]]:
    return [
        (", ".join(f"`{name}`" for name in reversed(p.opts)), _value(p), p.help)
        for p in command.params
        if p.param_type_name == "option" and not p.hidden and p.name != "help"
    ]


def _value(option: object) -> str:
    return "" if option.is_flag else option.type.name + (", repeatable" if option.multiple else "")


def _table(rows: Iterable[tuple[str, str, str | None]]) -> str:
    lines = ["| | value | |", "|---|---|---|"]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _plain(text: str | None) -> str:
    return inspect.cleandoc(text or "").strip() + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
