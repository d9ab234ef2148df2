"""Advice as Markdown."""

from __future__ import annotations

from rlinsight.analyzers.advise.finding import Advice
from rlinsight.report.advise.lines import paragraphs
from rlinsight.report.markdown import escaped


def markdown(name: str, advice: Advice) -> str:
    """Return the advice on the run `name` as Markdown."""
    lines = [f"# {escaped(name)}: what to change", "", escaped(advice.answer)]
    for paragraph in paragraphs(advice):
        lines += ["", f"## {escaped(paragraph.title)}", "", escaped(paragraph.says), ""]
        lines += [
            f"* **{part}**: " + (f"`{text}`" if part == "change" else escaped(text))
            for part, text in paragraph.lines
        ]
    if advice.cleared:
        lines += ["", "## Rules that propose nothing", ""]
        lines += [f"* `{rule}`: {escaped(reason)}" for rule, reason in advice.cleared.items()]
    return "\n".join(lines) + "\n"
