"""Strings of a trace in places that would read them as markup."""

from __future__ import annotations

from html import escape

#: Longer names are cut in figures; tables and tooltips have them in full.
MAX_LABEL = 60


def plain(text: object, limit: int | None = MAX_LABEL) -> str:
    """Return text for plotly, which reads a subset of HTML and `%{...}` in its strings."""
    cut = shortened(str(text), limit)
    # A zero-width space keeps plotly's template and MathJax syntax from being recognised.
    return escape(cut, quote=False).replace("%{", "%\u200b{").replace("$", "$\u200b")


def shortened(text: str, limit: int | None = MAX_LABEL) -> str:
    """Return `text` in at most `limit` characters, its middle left out."""
    if limit is None or len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[: limit - 1 - half]}…{text[-half:]}"
