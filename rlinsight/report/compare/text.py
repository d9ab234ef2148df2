"""A comparison for a terminal."""

from __future__ import annotations

from rich.console import Console

from rlinsight.analyzers.compare.result import Comparison
from rlinsight.report.compare.sections import sections
from rlinsight.report.compare.words import headline, notes
from rlinsight.report.plain import styled
from rlinsight.report.text import print_section


def print_comparison(found: Comparison, console: Console) -> None:
    """Print the sentences, the tables, and what to beware of."""
    for line in headline(found):
        console.print(styled(line, "bold"), soft_wrap=True)
    for section in sections(found):
        print_section(section, console)
    console.print()
    for line in notes(found):
        console.print(styled(line, "dim"), soft_wrap=True)
