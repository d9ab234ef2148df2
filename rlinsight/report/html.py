"""A report as one HTML file that needs no network: tables, and figures with plotly inlined."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Final

from rlinsight.errors import MissingExtraError
from rlinsight.report.header import header_lines
from rlinsight.report.section import Section
from rlinsight.report.sections import sections
from rlinsight.report.verdict import paragraph

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rlinsight.analyzers.result import Report

STYLE: Final = """
:root { color-scheme: light dark; }
body {
  font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem;
}
h2 { margin-top: 2.2rem; font-size: 1.15rem; }
.verdict { font-size: 1.1rem; border-left: 4px solid #2b6cb0; padding-left: 1rem; }
.alarm { border-color: #c53030; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8883; }
dt { float: left; clear: left; width: 8rem; opacity: .7; } dd { margin-left: 8rem; }
.figure { background: #fff; }
"""


def html(report: Report, pools: Iterable[str] | None = None) -> str:
    """Return the whole document. Raises MissingExtraError without plotly."""
    name = escape(report.run.run_id or "run")
    head = f"<meta charset=utf-8><title>{name} - rlinsight</title><style>{STYLE}</style>"
    return (
        f"<!doctype html><html lang=en><head>{head}</head>"
        f"<body><h1>{name}</h1>{fragment(report, pools)}{_figures(report)}</body></html>\n"
    )


def fragment(report: Report, pools: Iterable[str] | None = None) -> str:
    """Return verdict, header and tables without figures: what a notebook shows."""
    alarm = " alarm" if report.verdict.alarm else ""
    parts = [f'<p class="verdict{alarm}">{escape(paragraph(report))}</p><dl>']
    parts += [f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in header_lines(report)]
    parts.append("</dl>")
    parts += [section_html(section) for section in sections(report, pools)]
    return "".join(parts)


def section_html(section: Section) -> str:
    """Return a section as a heading, a table and its note."""
    head = "".join(f"<th>{escape(column)}</th>" for column in section.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in section.rows
    )
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h2>{escape(section.title)}</h2>{table}{note}"


def _figures(report: Report) -> str:
    try:
        from rlinsight.report.plots import figures
    except ImportError as error:
        raise MissingExtraError("the HTML report", "web") from error
    return figures_html(figures(report))


def figures_html(figures: Iterable[tuple[str, go.Figure]]) -> str:
    """Return titled figures; the first one brings the script that draws all of them."""
    parts = []
    for i, (title, figure) in enumerate(figures):
        drawn = figure.to_html(full_html=False, include_plotlyjs=i == 0)
        parts.append(f'<h2>{escape(title)}</h2><div class="figure">{drawn}</div>')
    return "".join(parts)
