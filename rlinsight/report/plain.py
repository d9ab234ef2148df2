"""Text as a terminal can show it: names of a trace may be long, and hold what it would obey.

Every line that a command prints for people goes through `line` or `plain`, also the cells of its
tables; JSON keeps names whole. Commands to type next are left alone, since they are to be pasted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text

#: Longer names are cut to so many characters of their begin, and longer lines.
LONGEST_NAME: Final = 256
NAME_SHOWN: Final = 80
LONGEST_LINE: Final = 4_000

#: A name: what stands between back-ticks, paired from the left, or has no blank in it.
_NAME: Final = re.compile(rf"`[^`]*`|[^\s`]{{{LONGEST_NAME + 1},}}")


def line(text: str) -> str:
    """Return a text as one line: what is not printable escaped, what is too long cut and counted.

    Worked example: a name of 12,345 letters a: 80 of them, then "… (12,345 characters)".
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _cut(_NAME.sub(_short_name, shown))


def plain(text: str) -> str:
    """Return a text of several lines, each as `line` returns it."""
    return "\n".join(map(line, text.split("\n")))


def styled(text: str, style: str = "") -> Text:
    """Return one line for a console; nothing in it is markup."""
    from rich.text import Text

    return Text(line(text), style=style)


def _short_name(found: re.Match[str]) -> str:
    name = found[0].strip("`")
    if len(name) <= LONGEST_NAME:
        return found[0]
    mark = "`" if found[0].startswith("`") else ""
    return f"{mark}{_cut(name, NAME_SHOWN, NAME_SHOWN)}{mark}"


def _cut(text: str, longest: int = LONGEST_LINE, kept: int = LONGEST_LINE) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:kept]}… ({len(text):,} characters)"
