"""Commands for the reader to type next, so that a shell reads them as they are meant."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

#: What may not stand as it is between the quotes of $'...'.
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "'": "\\'", "\\": "\\\\"}


def quoted(text: str | Path) -> str:
    r"""Return a path, URL or setting as one word of a command line, on one line.

    A path that begins with a dash gets `./` before it, since it would be taken for an option.

    Worked examples: `a b` is `'a b'`, `-dash` is `./-dash`, a newline is `$'a\nb'`.
    """
    name = str(text)
    return _word(f"./{name}" if name.startswith("-") else name)


def opening(path: Path) -> str:
    """Return the command that shows a written file."""
    return f"open {quoted(path)}"


def again(context: typer.Context, without: str) -> str:
    """Return the command that was typed, without one of its options (`dry_run`)."""
    options: list[str] = []
    arguments: list[str] = []
    for one in context.command.params:
        name, source = str(one.name), context.get_parameter_source(str(one.name))
        value = context.params[name]
        if name == without or source is None or source.name != "COMMANDLINE":
            continue
        if one.param_type_name == "argument":
            arguments += ["--", *map(_word, value)] if one.nargs == -1 else [quoted(value)]
        elif isinstance(value, bool):
            options.append((one.opts if value else one.secondary_opts)[0])
        else:
            values = value if isinstance(value, (list, tuple)) else [value]
            options += [word for each in values for word in (one.opts[0], _word(str(each)))]
    return " ".join(["rlinsight", str(context.info_name), *options, *arguments])


def _word(text: str) -> str:
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
