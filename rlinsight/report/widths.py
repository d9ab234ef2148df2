"""How wide the columns of a table are in a terminal: what wraps first, and what never does.

Prose wraps between its words first, then headings; only where that is not enough, long names are
folded. A number is never cut, and nothing loses its end: a table that needs more room than there
is becomes wider than the terminal, which then breaks its lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from rich.cells import cell_len

#: Blank columns between two columns.
GAP: Final = 2

#: A figure, also with its unit or interval, as against a name or prose.
_FIGURE: Final = re.compile(r"[-+±<>~]?\d")
#: Figures up to so long stay on one line while there is room.
_SHORT: Final = 20
#: Words longer than this are folded in a narrow terminal; in the narrowest, than the second.
_WORD, _NARROW_WORD, _NARROW_HEADING = 26, 13, 6


def widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column; the first of its cells is its heading.

    All together with the gaps are at most `room` where that cuts no number.
    """
    found = [max(map(cell_len, column)) for column in columns]
    for least in (_comfortable, _narrow):
        floors = [_floor(column, least) for column in columns]
        found = _shrunk(found, floors, room - GAP * (len(columns) - 1))
    return found


def is_tight(columns: Sequence[Sequence[str]], room: int) -> bool:
    """Whether names would have to be folded to make the columns fit into `room`."""
    return sum(_floor(column, _comfortable) + GAP for column in columns) - GAP > room


class Least(Protocol):
    """How narrow a text may become."""

    def __call__(self, text: str, /, *, is_heading: bool = False) -> int: ...


def _floor(column: Sequence[str], least: Least) -> int:
    heading, *cells = column
    return max(1, least(heading, is_heading=True), *map(least, cells))


def _comfortable(text: str, /, *, is_heading: bool = False) -> int:
    if not is_heading and _FIGURE.match(text) and cell_len(text) <= _SHORT:
        return cell_len(text)
    return min(_longest_word(text), _WORD)


def _narrow(text: str, /, *, is_heading: bool = False) -> int:
    if is_heading:
        return min(_longest_word(text), _NARROW_HEADING)
    if _FIGURE.match(text):
        return _longest_word(text)
    return min(_longest_word(text), _NARROW_WORD)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _shrunk(found: Sequence[int], floors: Sequence[int], room: int) -> list[int]:
    """Take the excess from the widest column that may shrink, again and again."""
    shrunk = [max(width, floor) for width, floor in zip(found, floors, strict=True)]
    while sum(shrunk) > room:
        able = [i for i, width in enumerate(shrunk) if width > floors[i]]
        if not able:
            break
        widest = max(able, key=lambda i: shrunk[i])
        shrunk[widest] -= 1
    return shrunk
