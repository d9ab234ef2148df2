"""An answer as Markdown."""

from __future__ import annotations

from rlinsight.report.markdown import escaped, table
from rlinsight.report.whatif.answer import Answer
from rlinsight.report.whatif.sections import headline, sections


def markdown(answer: Answer) -> str:
    """Return the answer as Markdown with pipe tables."""
    lines = [f"# {escaped(answer.trace)}: what if", ""]
    lines += [f"{escaped(line)}\n" for line in headline(answer)]
    for section in sections(answer):
        lines += [f"## {section.title}", "", *table(section), ""]
    return "\n".join(lines).rstrip() + "\n"
