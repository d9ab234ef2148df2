"""What all figures have in common: quiet axes, no background, our colours."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from rlinsight.webapp import palette

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"

#: Readable on light and dark where the page's style sheet does not reach, as in a saved picture.
_INK, _LINE = "#6b7480", "rgba(128,138,150,0.25)"


def figure(*traces: Any, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """Return a figure of `traces` with axis titles `x` and `y` (with their units)."""
    axis = {
        "gridcolor": _LINE,
        "zerolinecolor": _LINE,
        "linecolor": _LINE,
        "ticks": "",
        "automargin": True,
        "title": {"standoff": 10},
    }
    drawn = go.Figure(list(traces))
    drawn.update_layout(
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 12, "color": _INK},
        margin={"l": 8, "r": 12, "t": 8, "b": 8},
        colorway=list(palette.SERIES),
        hovermode="x unified",
        hoverlabel={"font": {"family": _FONT, "size": 12}},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        showlegend=len(traces) > 1,
        uirevision="kept",
        xaxis={**axis, "showgrid": False, "title": {"text": x, "standoff": 10}},
        yaxis={**axis, "rangemode": "tozero", "title": {"text": y, "standoff": 10}},
        bargap=0.15,
    )
    drawn.update_layout(layout)
    return drawn


def line(x: Any, y: Any, name: str, colour: str, **more: Any) -> go.Scatter:
    """Return a line; single points stay visible as dots."""
    few = len(x) <= 60
    return go.Scatter(
        x=x,
        y=y,
        name=name,
        mode=more.pop("mode", "lines+markers" if few else "lines"),
        line={"color": colour, "width": 2, **more.pop("line", {})},
        marker={"size": 5, "color": colour},
        connectgaps=False,
        **more,
    )


def band(x: Any, low: Any, high: Any, name: str, colour: str) -> list[go.Scatter]:
    """Return the area between two curves."""
    edge = {"width": 0, "color": colour}
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return [
        go.Scatter(x=x, y=low, line=edge, mode="lines", showlegend=False, hoverinfo="skip"),
        go.Scatter(
            x=x, y=high, line=edge, mode="lines", fill="tonexty", name=name,
            fillcolor=f"rgba({red},{green},{blue},0.2)", hoverinfo="skip",
        ),
    ]  # fmt: skip


def rule(
    drawn: go.Figure, *, text: str = "", x: float | None = None, y: float | None = None
) -> None:
    """Draw a dotted line at `x` or `y`; `text` names it."""
    style = {"line": {"dash": "dot", "width": 1.5, "color": _INK}}
    if x is not None:
        drawn.add_vline(x=x, **style)
        drawn.add_annotation(
            x=x, y=1, yref="paper", text=text, showarrow=False, xanchor="right", yanchor="top",
            xshift=-4,
        )  # fmt: skip
    if y is not None:
        drawn.add_hline(y=y, **style)


def stacked_axes(rows: int) -> go.Figure:
    """Return an empty figure of `rows` plots above each other that share their x axis."""
    from plotly.subplots import make_subplots

    gap = min(0.3 / rows, 0.1)
    drawn = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=gap)
    base = figure()
    drawn.update_layout(base.layout)
    drawn.update_xaxes(showgrid=False, linecolor=_LINE, zeroline=False, automargin=True)
    drawn.update_yaxes(gridcolor=_LINE, zerolinecolor=_LINE, automargin=True, nticks=4)
    drawn.update_layout(showlegend=False, margin={"l": 8, "r": 12, "t": 22, "b": 8})
    return drawn
