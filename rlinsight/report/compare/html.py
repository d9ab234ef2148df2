"""A comparison as one HTML file that needs no network."""

from __future__ import annotations

from html import escape

from rlinsight.analyzers.compare.result import Comparison
from rlinsight.errors import MissingExtraError
from rlinsight.report.compare.sections import sections
from rlinsight.report.compare.words import headline, notes
from rlinsight.report.html import STYLE, figures_html, section_html


def html(found: Comparison) -> str:
    """Return the whole document, its curves included. Raises MissingExtraError."""
    title = f"{len(found.runs)} runs beside {escape(found.reference)}"
    head = f"<meta charset=utf-8><title>{title} - rlinsight</title><style>{STYLE}</style>"
    parts = [f"<h1>{title}</h1>"]
    parts += [f'<p class="verdict">{escape(line)}</p>' for line in headline(found)]
    parts += [section_html(section) for section in sections(found)]
    parts.append(_figures(found))
    parts.append("<h2>Notes</h2><ul>")
    parts += [f"<li>{escape(line)}</li>" for line in notes(found)]
    body = "".join([*parts, "</ul>"])
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def _figures(found: Comparison) -> str:
    try:
        from rlinsight.report.compare.plots import figures
    except ImportError as error:
        raise MissingExtraError("the HTML report", "web") from error
    return figures_html(figures(found))
