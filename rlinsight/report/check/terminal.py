"""A check for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from rlinsight.report.check.words import (
    COLUMNS,
    attribution_lines,
    cells,
    headline,
    method,
    notes,
)
from rlinsight.report.plain import styled

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.result import CheckResult, MetricVerdict

_STYLES = {"PASS": "green", "FAIL": "bold red", "ERROR": "bold magenta", "INACTIVE": "yellow"}


def print_check(result: CheckResult, console: Console) -> None:
    """Print the verdict, the table of metrics, and where the time went."""
    console.print(styled(headline(result), _STYLES[result.verdict]), soft_wrap=True)
    if result.error is not None:
        for line in result.error.splitlines()[1:]:
            console.print(styled(line), soft_wrap=True)
        return
    console.print(styled(method(result), "dim"), soft_wrap=True)
    console.print()
    console.print(_table([m for m in result.metrics if m.gates], "May fail the build"))
    watched = [metric for metric in result.metrics if not metric.gates]
    if watched:
        console.print()
        console.print(_table(watched, "Watched only"))
    if result.attribution is not None and result.verdict == "FAIL":
        console.print()
        for i, line in enumerate(attribution_lines(result.attribution)):
            console.print(styled(line if i == 0 else f"  {line}", "bold" if not i else ""),
                          soft_wrap=True)  # fmt: skip
    if notes(result):
        console.print()
    for line in notes(result):
        console.print(styled(line), soft_wrap=True)


def _style(metric: MetricVerdict) -> str:
    harmless = metric.verdict == "FAIL" and not metric.fails
    return "yellow" if harmless else _STYLES[metric.verdict]


def _table(metrics: list[MetricVerdict], title: str) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False,
        header_style="dim",
    )  # fmt: skip
    for column in COLUMNS:
        table.add_column(column, no_wrap=True, overflow="ignore")
    for metric in metrics:
        name, verdict, *rest = cells(metric)
        table.add_row(styled(name), styled(verdict, _style(metric)), *map(styled, rest))
    return table
