"""Advice for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rlinsight.analyzers.advise.finding import Advice
from rlinsight.report.advise.lines import paragraphs
from rlinsight.report.plain import line, styled


def print_advice(advice: Advice, console: Console, *, why_not: bool = False) -> None:
    """Print the answer, the findings, and with `why_not` what the other rules saw."""
    style = "bold red" if advice.suppressed else "bold"
    console.print(styled(advice.answer, style), soft_wrap=True)
    for paragraph in paragraphs(advice):
        console.print()
        console.print(styled(paragraph.title, "bold"), soft_wrap=True)
        console.print(styled(paragraph.says), soft_wrap=True)
        for name, text in paragraph.lines:
            console.print(Text.assemble((f"  {name:<9}", "dim"), line(text)), soft_wrap=True)
    if why_not and advice.cleared:
        console.print()
        console.print(Text("Rules that propose nothing", style="bold"))
        for name, reason in advice.cleared.items():
            console.print(Text.assemble((f"  {name:<20}", "dim"), line(reason)), soft_wrap=True)
