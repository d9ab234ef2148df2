"""A comparison as Markdown."""

from __future__ import annotations

from rlinsight.analyzers.compare.result import Comparison
from rlinsight.report.compare.sections import sections
from rlinsight.report.compare.words import headline, notes
from rlinsight.report.markdown import escaped, table


def markdown(found: Comparison) -> str:
    """Return the comparison as Markdown with pipe tables."""
    lines = [f"# {len(found.runs)} runs beside {escaped(found.reference)}", ""]
    lines += [f"* {escaped(line)}" for line in headline(found)]
    for section in sections(found):
        lines += ["", f"## {escaped(section.title)}", "", *table(section)]
    lines += ["", "## Notes", "", *(f"* {escaped(line)}" for line in notes(found))]
    return "\n".join(lines) + "\n"
