"""A report for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
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
from rlinsight.report.widths import GAP, is_tight, widths

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
            print_section(section, console)


def print_section(section: Section, console: Console) -> None:
    """Print a section as a table, after an empty line."""
    console.print()
    console.print(as_table(section, console.width), crop=False)


def as_table(section: Section, room: int) -> Table:
    """Return a section as a table of a terminal that is `room` columns wide."""
    cells = _columns(section, room)
    needed = widths(cells, room)
    table = Table(
        title=section.title, title_justify="left", title_style="bold",
        caption=escape(line(section.note)), caption_justify="left",
        box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim",
        width=sum(needed) + GAP * (len(needed) - 1),
    )  # fmt: skip
    for column, width in zip(cells, needed, strict=True):
        table.add_column(escape(column[0]), width=width, overflow="fold")
    for row in zip(*(column[1:] for column in cells), strict=True):
        table.add_row(*map(escape, row))
    return table


def _columns(section: Section, room: int) -> list[list[str]]:
    """Return each column, its heading first."""
    rows = zip_longest(section.columns, *section.rows, fillvalue="")
    cells = [[line(cell) for cell in column] for column in rows]
    if is_tight(cells, room):
        return [column for column in cells if column[0] not in section.spare]
    return cells
