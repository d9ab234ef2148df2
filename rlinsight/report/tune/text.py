"""A tuning for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rlinsight.report.text import as_table
from rlinsight.report.tune.words import headline, runs
from rlinsight.runs.tune.log import Log


def print_log(log: Log, console: Console) -> None:
    """Print what was gained and the table of runs."""
    for line in headline(log):
        console.print(Text(line, style="bold"), soft_wrap=True)
    if log.records:
        console.print()
        console.print(as_table(runs(log)))
    for one in log.skipped:
        console.print(Text(f"left out: {one.rule}: {one.reason}", style="dim"), soft_wrap=True)
