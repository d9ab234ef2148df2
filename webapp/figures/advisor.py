"""Figures of the advisor."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from rlinsight.analyzers.simulate import Point, Sweep
from rlinsight.webapp import palette
from rlinsight.webapp.figures.base import figure


def pareto(found: Sweep) -> Any:
    """Throughput per device against mean lag; settings that no other beats are filled."""
    known = [point for point in found.points if point.prediction is not None]
    best, rest = ([p for p in known if p.best is wanted] for wanted in (True, False))
    traces = [
        _points(rest, "beaten by another setting", palette.OTHER, "circle-open"),
        _points(best, "not beaten", palette.SERIES[2], "circle"),
        go.Scatter(
            x=[found.base.mean_lag_versions.value],
            y=[found.base.tokens_per_s_per_device.value],
            name="the run as it was",
            mode="markers",
            marker={"symbol": "diamond", "size": 13, "color": palette.SERIES[1]},
            hovertemplate="as it was: %{y:.4g} tokens/s/device, lag %{x:.3g}<extra></extra>",
        ),
    ]
    return figure(
        *traces, x="mean lag, versions", y="tokens/s/device", hovermode="closest", showlegend=True
    )


def _points(points: list[Point], name: str, colour: str, symbol: str) -> go.Scatter:
    predicted = [p.prediction for p in points if p.prediction is not None]
    return go.Scatter(
        x=[p.mean_lag_versions.value for p in predicted],
        y=[p.tokens_per_s_per_device.value for p in predicted],
        name=name,
        mode="markers",
        marker={"symbol": symbol, "size": 9, "color": colour},
        customdata=[
            [", ".join(f"{k.replace('_', ' ')} {v}" for k, v in p.changes.items()),
             p.prediction.tokens_per_s.value if p.prediction else None]
            for p in points
        ],
        hovertemplate="%{customdata[0]}<br>%{y:.4g} tokens/s/device, %{customdata[1]:.4g} "
        "tokens/s, lag %{x:.3g}<extra></extra>",
    )  # fmt: skip
