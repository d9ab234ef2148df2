"""Where commands print."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Columns where nobody says how wide the output is shown: a file, a pipe, a CI log.
_WIDTH = 160
#: More than any table has.
_UNBOUNDED = 20_000


def console(**options: Any) -> Console:
    """Return a console as wide as the terminal; elsewhere wide enough for every table."""
    from rich.console import Console

    made = Console(**options)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _WIDTH
    return made


def unbounded(**options: Any) -> Console:
    """Return a console for tables that keep their shape: their lines are as long as they must be.

    A log has no width; a narrow terminal breaks the lines by itself, and nothing is cut off.
    """
    from rich.console import Console

    return Console(width=_UNBOUNDED, soft_wrap=True, **options)
