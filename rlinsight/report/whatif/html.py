"""An answer as one HTML file that needs no network."""

from __future__ import annotations

from html import escape

from rlinsight.errors import MissingExtraError
from rlinsight.report.html import STYLE, section_html
from rlinsight.report.whatif.answer import Answer
from rlinsight.report.whatif.sections import headline, sections


def html(answer: Answer) -> str:
    """Return the whole document, with the Pareto plot of a sweep. Raises MissingExtraError."""
    name = escape(answer.trace)
    head = f"<meta charset=utf-8><title>{name} - what if</title><style>{STYLE}</style>"
    first, *rest = headline(answer)
    parts = [f"<h1>{name}: what if</h1>", f'<p class="verdict">{escape(first)}</p>']
    parts += [f"<p>{escape(line)}</p>" for line in rest]
    parts += [section_html(section) for section in sections(answer)]
    parts.append(_figure(answer))
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _figure(answer: Answer) -> str:
    if answer.sweep is None:
        return ""
    try:
        from rlinsight.report.whatif.pareto import pareto
    except ImportError as error:
        raise MissingExtraError("the HTML report", "web") from error
    drawn = pareto(answer.sweep).to_html(full_html=False, include_plotlyjs=True)
    return f'<h2>Trade-offs</h2><div class="figure">{drawn}</div>'
