"""An answer for a terminal."""

from __future__ import annotations

from rich.console import Console

from rlinsight.report.plain import styled
from rlinsight.report.text import print_section
from rlinsight.report.whatif.answer import Answer
from rlinsight.report.whatif.sections import headline, sections


def print_answer(answer: Answer, console: Console) -> None:
    """Print the sentences and the tables of an answer."""
    for i, line in enumerate(headline(answer)):
        console.print(styled(line, "bold" if i == 0 else ""), soft_wrap=True)
    for section in sections(answer):
        print_section(section, console)
