"""A check as Markdown: the body of a comment, or a step summary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rlinsight.report.check.words import (
    COLUMNS,
    attribution_lines,
    cells,
    headline,
    method,
    notes,
)

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.result import CheckResult, MetricVerdict

#: By this a bot finds its earlier comment, to replace it.
MARKER: Final = "<!-- rlinsight-check -->"
_SIGNS: Final = {"PASS": "✅", "FAIL": "❌", "ERROR": "⚠️", "INACTIVE": "⏸️"}


def markdown(result: CheckResult) -> str:
    """Return the comment."""
    lines = [MARKER, f"### {_SIGNS[result.verdict]} {_escaped(headline(result))}", ""]
    if result.error is not None:
        lines += ["```", *result.error.splitlines(), "```"]
        return "\n".join(lines) + "\n"
    gating = [metric for metric in result.metrics if metric.gates]
    watched = [metric for metric in result.metrics if not metric.gates]
    lines += _table(gating)
    if result.attribution is not None and result.verdict == "FAIL":
        first, *rest = attribution_lines(result.attribution)
        lines += ["", f"**{_escaped(first)}**", "", *(f"* {_escaped(line)}" for line in rest)]
    lines += ["", *(f"* {_escaped(note)}" for note in notes(result))]
    if watched:
        summary = f"<details><summary>{len(watched)} watched metrics</summary>"
        lines += ["", summary, "", *_table(watched), "", "</details>"]
    return "\n".join([*lines, "", f"<sub>{_escaped(method(result))}</sub>"]) + "\n"


def _table(metrics: Iterable[MetricVerdict]) -> list[str]:
    head = [_row(COLUMNS), _row(["---"] * len(COLUMNS))]
    rows = []
    for metric in metrics:
        name, verdict, *rest = cells(metric)
        rows.append(_row([f"`{name}`", f"{_sign(metric)} {verdict}", *rest]))
    return head + rows


def _sign(metric: MetricVerdict) -> str:
    """A failure that does not fail the build is no red cross."""
    harmless = metric.verdict == "FAIL" and not metric.fails
    return "👀" if harmless else _SIGNS[metric.verdict]


def _row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _escaped(text: str) -> str:
    for mark in ("\\", "<", "*", "_", "`", "|"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")
