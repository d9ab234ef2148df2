"""A report for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlinsight.report.header import header_lines
from rlinsight.report.plain import line, plain
from rlinsight.report.section import Section
from rlinsight.report.sections import sections
from rlinsight.report.verdict import paragraph

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report

#: Sections that the short form leaves out.
DETAILS = ("Largest bubbles", "Version windows", "Time per activity, whole run")


def print_report(
    report: Report,
    console: Console,
    *,
    pools: Iterable[str] | None = None,
    full: bool = True,
) -> None:
    """Print the verdict, the run, and the tables; without `full`, not the details."""
    style = "bold red" if report.verdict.alarm else "bold"
    console.print(Padding(Text(plain(paragraph(report)), style=style), (0, 0, 1, 0)))
    for name, value in header_lines(report):
        console.print(Text.assemble((f"{name:<12}", "dim"), line(value)), soft_wrap=True)
    for section in sections(report, pools):
        if full or section.title not in DETAILS:
            console.print()
            console.print(as_table(section))


def as_table(section: Section) -> Table:
    """Return a section as a table of the terminal."""
    table = Table(
        title=section.title, title_justify="left", title_style="bold",
        caption=escape(line(section.note)), caption_justify="left",
        box=None, pad_edge=False, header_style="dim",
    )  # fmt: skip
    for column in section.columns:
        table.add_column(escape(line(column)))
    for row in section.rows:
        table.add_row(*(escape(line(cell)) for cell in row))
    return table
