"""The figures of a comparison. Imports plotly; see the `web` extra."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import plotly.graph_objects as go

from rlinsight.analyzers.compare.curves import IDLE
from rlinsight.analyzers.compare.result import Comparison
from rlinsight.analyzers.compare.series import Response

_FLAT = "rgba(43,108,176,0.12)"


def figures(found: Comparison) -> Iterator[tuple[str, go.Figure]]:
    """Yield (title, figure): the response curves, then each figure over the course of the runs."""
    if found.series is not None:
        for response in found.series.responses:
            title = f"{response.metric} over {found.series.variable.key}"
            yield title, curve(response, found.series.variable.name)
    for name in dict.fromkeys(one.figure for run in found.runs for one in run.curves):
        yield name, course(found, name)


def curve(response: Response, variable: str) -> go.Figure:
    """A response curve with 95 % intervals, its plateau shaded."""
    points = response.points
    figure = go.Figure(
        go.Scatter(
            x=[p.setting for p in points],
            y=[p.value for p in points],
            mode="lines+markers",
            text=[escape(", ".join(p.runs)) for p in points],
            error_y={
                "type": "data", "symmetric": False,
                "array": [0 if p.high is None else p.high - p.value for p in points],
                "arrayminus": [0 if p.low is None else p.value - p.low for p in points],
            },
        )
    )  # fmt: skip
    if response.plateau is not None:
        figure.add_vrect(
            x0=response.plateau.start, x1=points[-1].setting, fillcolor=_FLAT, line_width=0,
            annotation_text="plateau", annotation_position="top left",
        )  # fmt: skip
    if response.knee is not None:
        figure.add_vline(x=response.knee, line_dash="dot", annotation_text="knee")
    figure.update_layout(xaxis_title=escape(variable), height=320, yaxis_rangemode="tozero")
    figure.update_yaxes(title=response.unit, tickformat=".0%" if response.unit == "share" else None)
    return figure


def course(found: Comparison, name: str) -> go.Figure:
    """One line a run over parameter versions or training steps."""
    figure, axis = go.Figure(), ""
    for run in found.runs:
        for one in run.curves:
            if one.figure == name:
                axis = one.axis
                figure.add_trace(
                    go.Scatter(x=one.x, y=one.y, name=escape(run.name), mode="lines+markers")
                )
    figure.update_layout(xaxis_title=axis, yaxis_title=escape(name), height=300, showlegend=True)
    if name == IDLE:
        figure.update_layout(yaxis_tickformat=".0%", yaxis_rangemode="tozero")
    return figure
