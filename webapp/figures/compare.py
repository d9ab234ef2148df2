"""Figures of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from rlinsight.analyzers.compare.series import Response
from rlinsight.webapp import palette
from rlinsight.webapp.figures.base import figure, line, rule
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


def response(found: Response, variable: str) -> Any:
    """A metric against what was varied, with 95 % intervals, its plateau shaded."""
    points = found.points
    trace = go.Scatter(
        x=[p.setting for p in points],
        y=[p.value for p in points],
        mode="lines+markers",
        line={"color": palette.SERIES[0], "width": 2},
        marker={"size": 8},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [0 if p.high is None else p.high - p.value for p in points],
            "arrayminus": [0 if p.low is None else p.value - p.low for p in points],
            "thickness": 1.2,
        },
        customdata=[plain(", ".join(p.runs)) for p in points],
        hovertemplate="%{customdata}<br>%{x}: %{y:.4g}<extra></extra>",
    )
    drawn = figure(trace, x=plain(variable), y=f"{found.metric}", hovermode="closest")
    if found.unit == "share":
        drawn.update_layout(yaxis_tickformat=".0%")
    if found.plateau is not None:
        drawn.add_vrect(
            x0=found.plateau.start, x1=points[-1].setting, fillcolor=palette.SERIES[0],
            opacity=0.12, line_width=0, annotation_text="plateau",
            annotation_position="top left",
        )  # fmt: skip
    if found.knee is not None:
        rule(drawn, x=found.knee, text="knee")
    return drawn
