"""Pieces that the pages are put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import dash_mantine_components as dmc
from dash import dcc, html

from rlinsight.analyzers.result import Estimate
from rlinsight.report.units import number, percent
from rlinsight.webapp import urls
from rlinsight.webapp.store import Run

_GRAPH: Final = {"displayModeBar": False, "responsive": True, "doubleClick": "reset"}


def message(title: str, text: str, *more: Any) -> Any:
    """Return a page that only says something."""
    return html.Div(
        [html.H1(title), html.P(text, className="trace-text"), *more], className="message"
    )


def alarm(run: Run) -> Any:
    """Return the banner of a run that stands still."""
    first = run.report.liveness.alarms[0]
    end = run.seconds(first.since_ns) + first.for_s
    return dmc.Alert(
        [
            html.Span(f"{first.sentence}. ", className="trace-text"),
            dcc.Link(
                "Show it on the timeline",
                href=urls.timeline(run.id, run.seconds(first.since_ns), end),
                style={"textDecoration": "underline"},
            ),
        ],
        title="This run stands still",
        color="red",
        variant="light",
        mb="md",
    )


def verdict(sentences: Sequence[str], *, alarm: bool = False) -> Any:
    """Return what matters most in one large sentence, the rest below it."""
    return html.Div(
        [
            html.P(sentences[0], className="verdict-first trace-text"),
            html.P(" ".join(sentences[1:]), className="verdict-more trace-text"),
        ],
        className="verdict verdict-alarm" if alarm else "verdict",
    )


def card(
    label: str, value: str, unit: str = "", *, interval: str = "", note: str = "", href: str = ""
) -> Any:
    """Return one key figure: what it is, its value with its unit, how sure, and a remark."""
    lines = [
        html.Div(label, className="card-label"),
        html.Div(
            [value, *([html.Span(unit, className="card-unit")] if unit else [])],
            className="card-value",
        ),
    ]
    lines += [html.Div(interval, className="card-interval")] if interval else []
    lines += [html.Div(note, className="card-note trace-text")] if note else []
    if href:
        return dcc.Link(lines, href=href, className="card")
    return html.Div(lines, className="card")


def cards(items: Iterable[Any]) -> Any:
    """Return key figures side by side, in rows of equal length where possible."""
    found = list(items)
    return html.Div(found, className=f"cards cards-{len(found)}")


def interval(estimate: Estimate) -> str:
    """Return the 95 % interval of an estimate, or why there is none."""
    if estimate.value is None:
        return ""
    if estimate.low is None or estimate.high is None:
        return "too few version windows for an interval"
    return f"95 %: {number(estimate.low)} to {number(estimate.high)}"


def signed(change: Estimate) -> str:
    """Return a relative change with its sign."""
    text = percent(change.value)
    return text if text.startswith("-") else f"+{text}"


def percents(low: float, high: float) -> str:
    """Return an interval of ratios."""
    return f"95 %: {percent(low).removesuffix(' %')} to {percent(high)}"


def section(title: str, *children: Any, note: str = "", actions: Sequence[Any] = ()) -> Any:
    """Return a titled part of a page."""
    head = html.Div(
        [
            html.H2(title),
            *([html.Div(list(actions), className="section-actions")] if actions else []),
        ],
        className="section-head",
    )
    notes = [html.P(note, className="section-note trace-text")] if note else []
    return html.Section([head, *notes, *children], className="section", **{"aria-label": title})


def columns(*sections: Any) -> Any:
    """Return parts side by side where the screen is wide enough."""
    return html.Div(list(sections), className="columns")


def nothing(text: str) -> Any:
    """Return what stands where there is nothing to show, and why."""
    return html.P(text, className="nothing")


def figure(drawn: Any, label: str, height: int = 280) -> Any:
    """Return a plotly figure; `label` says in words what it shows."""
    drawn.update_layout(height=height)
    graph = dcc.Graph(figure=drawn, config=_GRAPH, style={"height": f"{height}px"})
    return html.Div(graph, className="figure", role="img", **{"aria-label": label})


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int] = ()) -> Any:
    """Return a plain table; `numbers` are the columns that are aligned to the right."""

    def classes(i: int) -> str:
        return "number" if i in numbers else ""

    header = html.Tr(
        [html.Th(cell, className=classes(i), scope="col") for i, cell in enumerate(head)]
    )
    body = [
        html.Tr([html.Td(cell, className=classes(i)) for i, cell in enumerate(row)]) for row in rows
    ]
    return html.Div(
        html.Table([html.Thead(header), html.Tbody(body)], className="table"), className="scroll"
    )
