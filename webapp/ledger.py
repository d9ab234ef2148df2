"""Where the device time of each pool went, as bars of equal length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dash import html

from rlinsight.analyzers.device_time.states import STATES, kind
from rlinsight.analyzers.result import PoolReport, Report
from rlinsight.report.units import counted, number, percent
from rlinsight.webapp import palette, words

#: A narrower part gets no label of its own; the legend has it.
_LABELLED: Final = 0.07

_PATTERN_CLASS: Final = {
    "/": "slash", "\\": "back", "|": "bars", "-": "lines", "x": "cross", "+": "plus", ".": "dots",
}  # fmt: skip

_KINDS: Final = ("useful", "overhead", "bubble")
_ORDER: Final = sorted(STATES, key=lambda state: _KINDS.index(kind(state)))


def bars(report: Report) -> Any:
    """Return one bar a pool, and a legend of the states that occur."""
    rows = [part for name, pool in report.pools.items() for part in _pool(name, pool)]
    return html.Div([html.Div(rows, className="ledger"), *_legends(report)])


def _pool(name: str, pool: PoolReport) -> Iterator[Any]:
    total = pool.device_seconds
    label = [name, html.Small(counted(pool.devices, "device"))]
    yield html.Div(label, className="ledger-pool")
    present = [state for state in _ORDER if pool.ledger.get(state)]
    said = ", ".join(f"{words.state(s)} {percent(pool.ledger[s] / total)}" for s in present)
    yield html.Div(
        [_part(state, pool.ledger[state], total) for state in present],
        className="ledger-bar",
        role="img",
        **{"aria-label": f"{name}: {said}"},
    )
    sums = (pool.useful_seconds, pool.overhead_seconds, pool.bubble_seconds)
    yield html.Div(
        [
            html.Span(
                [html.B(percent(seconds / total if total else None)), f" {words.KINDS[name]}"]
            )
            for name, seconds in zip(_KINDS, sums, strict=True)
        ]
        + [html.Span(f"{number(total)} device-s")],
        className="ledger-kinds",
    )


def _part(state: str, seconds: float, total: float) -> Any:
    share = seconds / total
    label = [html.Span(words.state(state))] if share >= _LABELLED else []
    return html.Div(
        label,
        className=f"ledger-part {pattern(state)}",
        style={"flexGrow": share, "flexBasis": 0, "backgroundColor": palette.state_colour(state)},
        title=f"{words.meaning(state)} · {percent(share)} · {number(seconds)} device-s",
    )


def _legends(report: Report) -> Iterator[Any]:
    used = {state for pool in report.pools.values() for state, s in pool.ledger.items() if s}
    for name in _KINDS:
        states = [state for state in _ORDER if state in used and kind(state) == name]
        if states:
            items = [html.Li([swatch(state), words.state(state)]) for state in states]
            title = html.Li(words.KINDS[name], className="legend-title")
            yield html.Ul([title, *items], className="legend")


def swatch(state: str) -> Any:
    """Return the colour and pattern of a state, in small."""
    colour = palette.state_colour(state)
    return html.Span(className=f"swatch {pattern(state)}", style={"backgroundColor": colour})


def pattern(state: str) -> str:
    """Return the classes that draw the pattern of a bubble's state."""
    shape = palette.PATTERN.get(state)
    return f"pattern pattern-{_PATTERN_CLASS[shape]}" if shape else ""
