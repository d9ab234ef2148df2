"""Figures of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from rlinsight.analyzers.result import Estimate
from rlinsight.webapp import palette
from rlinsight.webapp.figures.base import figure, line
from rlinsight.webapp.text import plain

_DASHES: Final = ("solid", "dash", "dot", "dashdot")

#: A curve of one run: its name, and its points.
Curve = tuple[str, Sequence[Any], Sequence[Any]]


def colour(i: int) -> str:
    """Return the colour of the i-th run."""
    return palette.SERIES[i % len(palette.SERIES)]


def curves(runs: Sequence[Curve], x: str, y: str, percent: bool = False) -> Any:
    """One curve a run on a common axis."""
    traces = [
        line(xs, ys, plain(name, 40), colour(i),
             hovertemplate="%{y:.1%}" if percent else "%{y:.4g}",
             line={"dash": _DASHES[i // len(palette.SERIES) % len(_DASHES)]})
        for i, (name, xs, ys) in enumerate(runs)
    ]  # fmt: skip
    drawn = figure(*traces, x=x, y=y, showlegend=True)
    if percent:
        drawn.update_layout(yaxis_tickformat=".0%")
    return drawn


def response(points: Sequence[tuple[str, float, Estimate]], x: str, y: str) -> Any:
    """A figure of merit against the knob that was varied, with 95 % intervals."""
    ordered = sorted(points, key=lambda point: point[1])
    known = [(name, at, e) for name, at, e in ordered if e.value is not None]
    values = [e.value or 0.0 for _, _, e in known]
    trace = go.Scatter(
        x=[at for _, at, _ in known],
        y=values,
        mode="lines+markers",
        line={"color": palette.SERIES[0], "width": 2},
        marker={"size": 8},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [
                0 if e.high is None else e.high - v
                for v, (_, _, e) in zip(values, known, strict=True)
            ],
            "arrayminus": [
                0 if e.low is None else v - e.low
                for v, (_, _, e) in zip(values, known, strict=True)
            ],
            "thickness": 1.2,
        },
        customdata=[plain(name) for name, _, _ in known],
        hovertemplate="%{customdata}<br>%{x}: %{y:.4g}<extra></extra>",
    )
    return figure(trace, x=x, y=y, hovermode="closest")
