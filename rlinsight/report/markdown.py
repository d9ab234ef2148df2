"""A report as Markdown, for a merge request or a wiki."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlinsight.report.header import header_lines
from rlinsight.report.section import Section
from rlinsight.report.sections import sections
from rlinsight.report.verdict import paragraph

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report


def markdown(report: Report, pools: Iterable[str] | None = None) -> str:
    """Return the report as Markdown with pipe tables."""
    title = f"# {escaped(report.run.run_id or 'run')}: where the device time went"
    lines = [title, "", escaped(paragraph(report)), ""]
    lines += [f"* **{name}**: {escaped(value)}" for name, value in header_lines(report)]
    for section in sections(report, pools):
        lines += ["", f"## {section.title}", "", *table(section)]
    return "\n".join(lines) + "\n"


def table(section: Section) -> list[str]:
    """Return the lines of one table."""
    lines = [_row(section.columns), _row("---" for _ in section.columns)]
    lines += [_row(row) for row in section.rows]
    return [*lines, "", section.note] if section.note else lines


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """Return text in which Markdown sees no markup."""
    for mark in ("\\", "|", "<", "*", "_", "`"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")
