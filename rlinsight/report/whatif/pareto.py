"""The Pareto plot of a sweep. Imports plotly; see the `web` extra."""

from __future__ import annotations

import plotly.graph_objects as go

from rlinsight.analyzers.simulate.predict import Prediction
from rlinsight.analyzers.simulate.sweep import Point, Sweep
from rlinsight.report.whatif.sections import change_text


def pareto(sweep: Sweep) -> go.Figure:
    """Wall-clock throughput against throughput per device, coloured by mean lag.

    Settings that no other beats are drawn larger, the run as it was as a cross.
    """
    known = [point for point in sweep.points if point.prediction is not None]
    figure = go.Figure()
    for name, best in (("not beaten", True), ("beaten", False)):
        points = [point for point in known if point.best == best]
        figure.add_trace(_trace(points, name, 15 if best else 8, _range(known)))
    figure.add_trace(
        go.Scatter(
            x=[sweep.base.tokens_per_s_per_device.value], y=[sweep.base.tokens_per_s.value],
            mode="markers", name="as it was",
            marker={"symbol": "x", "size": 12, "color": "#c53030"},
        )
    )  # fmt: skip
    figure.update_layout(
        xaxis_title="tokens/s per device", yaxis_title="tokens/s, whole job", height=460,
        legend_orientation="h",
    )  # fmt: skip
    return figure


def _trace(points: list[Point], name: str, size: int, lags: tuple[float, float]) -> go.Scatter:
    found = [point.prediction for point in points if point.prediction is not None]
    return go.Scatter(
        x=[p.tokens_per_s_per_device.value for p in found],
        y=[p.tokens_per_s.value for p in found],
        error_x=_bars(found, "tokens_per_s_per_device"),
        error_y=_bars(found, "tokens_per_s"),
        mode="markers", name=name,
        text=[change_text(point.changes) for point in points],
        customdata=[p.mean_lag_versions.value for p in found],
        marker={
            "size": size, "color": [p.mean_lag_versions.value for p in found],
            "colorscale": "Viridis", "cmin": lags[0], "cmax": lags[1],
            "showscale": name == "not beaten", "colorbar": {"title": "mean lag"},
        },
        hovertemplate="%{text}<br>%{x:.4g} tokens/s per device<br>%{y:.4g} tokens/s"
        "<br>mean lag %{customdata:.2f} versions",
    )  # fmt: skip


def _bars(found: list[Prediction], figure: str) -> dict[str, object]:
    values = [getattr(prediction, figure) for prediction in found]
    if any(value.low is None for value in values):
        return {"visible": False}
    return {
        "type": "data", "symmetric": False, "thickness": 0.8, "color": "#8888",
        "array": [value.high - value.value for value in values],
        "arrayminus": [value.value - value.low for value in values],
    }  # fmt: skip


def _range(points: list[Point]) -> tuple[float, float]:
    lags = [
        point.prediction.mean_lag_versions.value or 0.0
        for point in points
        if point.prediction is not None
    ]
    return (min(lags, default=0.0), max(lags, default=1.0))
