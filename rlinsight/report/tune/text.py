"""A tuning for a terminal."""

from __future__ import annotations

from rich.console import Console

from rlinsight.report.plain import styled
from rlinsight.report.text import print_section
from rlinsight.report.tune.words import headline, runs
from rlinsight.runs.tune.log import Log


def print_log(log: Log, console: Console) -> None:
    """Print what was gained and the table of runs."""
    for line in headline(log):
        console.print(styled(line, "bold"), soft_wrap=True)
    if log.records:
        print_section(runs(log), console)
    for one in log.skipped:
        console.print(styled(f"left out: {one.rule}: {one.reason}", "dim"), soft_wrap=True)
