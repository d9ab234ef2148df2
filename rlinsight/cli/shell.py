"""Commands for the reader to type next, so that a shell reads them as they are meant."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

#: What may not stand as it is between the quotes of $'...'.
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "'": "\\'", "\\": "\\\\"}


def quoted(text: str | Path) -> str:
    r"""Return a path, URL or setting as one word of a command line, on one line.

    A path that begins with a dash gets `./` before it, since it would be taken for an option.

    Worked examples: `a b` is `'a b'`, `-dash` is `./-dash`, a newline is `$'a\nb'`.
    """
    name = str(text)
    name = f"./{name}" if name.startswith("-") else name
    if name.isprintable():
        return shlex.quote(name)
    return "$'" + "".join(map(_escaped, name)) + "'"


def opening(path: Path) -> str:
    """Return the command that shows a written file."""
    return f"open {quoted(path)}"


def _escaped(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
