"""Figures of the staleness page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
import polars as pl

from rlinsight.analyzers.staleness.coverage import Coverage
from rlinsight.webapp import palette
from rlinsight.webapp.figures.base import figure, line, rule, stacked_axes
from rlinsight.webapp.figures.series import thinned
from rlinsight.webapp.text import plain

#: From fresh to old: light to dark, so that more lag is more ink.
_LAGS: Final = ("#a9d3ec", "#6db3de", "#3a8fc9", "#1f6fb0", "#2d5593")
_WAIT: Final = palette.STATE["bubble.wait_samples"]


def lag_colour(lag: int) -> str:
    """Return the colour of a lag in versions; the older, the darker."""
    return _LAGS[min(max(lag, 0), len(_LAGS) - 1)]


def lags(counts: Mapping[int, int]) -> Any:
    """How many trained samples lag by how many versions."""
    total = sum(counts.values())
    bars = go.Bar(
        x=list(counts),
        y=list(counts.values()),
        marker_color=[lag_colour(lag) for lag in counts],
        customdata=[count / total for count in counts.values()],
        hovertemplate="lag %{x}: %{y} samples, %{customdata:.1%}<extra></extra>",
    )
    drawn = figure(bars, x="lag, versions", y="samples", hovermode="closest")
    drawn.update_xaxes(dtick=1 if len(counts) <= 20 else None)
    return drawn


def lags_by_version(rows: Sequence[tuple[int, Mapping[int, int]]]) -> Any:
    """The share of each lag among the samples trained under each version."""
    found = sorted({lag for _, counts in rows for lag in counts})
    x = [version for version, _ in rows]
    bars = [
        go.Bar(
            x=x,
            y=[counts.get(lag, 0) / max(sum(counts.values()), 1) for _, counts in rows],
            name=f"lag {lag}",
            marker_color=lag_colour(lag),
            hovertemplate="%{y:.0%}",
        )
        for lag in found
    ]
    drawn = figure(*bars, x="trained parameter version", y="share of samples", barmode="stack")
    drawn.update_layout(yaxis={"tickformat": ".0%", "range": [0, 1]}, showlegend=True, bargap=0.05)
    return drawn


def coverage(found: Coverage) -> Any:
    """Measured coverage per version window, against what the settings can cover."""
    known = [row for row in found.windows if row.coverage is not None]
    bars = go.Bar(
        x=[row.version for row in known],
        y=[row.coverage for row in known],
        marker_color=palette.SERIES[0],
        customdata=[[row.wait_s, row.fresh_only_wait_s] for row in known],
        hovertemplate="%{y:.0%}: waited %{customdata[0]:.3g} s, with fresh samples only "
        "%{customdata[1]:.3g} s<extra></extra>",
        name="measured",
    )
    drawn = figure(bars, x="parameter version", y="coverage of the wait")
    drawn.update_layout(yaxis_tickformat=".0%")
    if found.analytic is not None:
        rule(drawn, y=found.analytic.coverage)
    return drawn


def quota(used: pl.DataFrame, limit: pl.DataFrame) -> Any:
    """Samples that count as stale over time, against the most that may be."""
    limit = pl.concat([limit, limit.tail(1).with_columns(x=used["x"].tail(1))])
    used, limit = thinned(used), thinned(limit)
    traces = [
        line(used["x"], used["y"], "staleness_samples", palette.SERIES[0], mode="lines",
             line={"shape": "hv", "width": 1.5}),
        line(limit["x"], limit["y"], "max_required_samples", _WAIT, mode="lines",
             line={"shape": "hv", "dash": "dash"}),
    ]  # fmt: skip
    drawn = figure(*traces, x="seconds since the first row", y="samples")
    highest = max(float(part["y"].max() or 0) for part in (used, limit) if len(part))  # type: ignore[arg-type]
    drawn.update_yaxes(range=[0, 1.15 * highest or 1])
    return drawn


def steps_covered(found: Coverage) -> Any:
    """How often the n-th trigger step after a sync was fed with older samples, and its wait."""
    bars = go.Bar(
        x=[step.position for step in found.steps],
        y=[step.stale_share for step in found.steps],
        marker_color=_LAGS[2],
        customdata=[step.mean_wait_s for step in found.steps],
        hovertemplate="step %{x} after a sync: %{y:.0%} of its samples are older, mean wait "
        "%{customdata:.3g} s<extra></extra>",
    )
    drawn = figure(bars, x="trigger step after a sync", y="share of older samples",
                   hovermode="closest", bargap=0.4)  # fmt: skip
    drawn.update_layout(yaxis={"tickformat": ".0%", "range": [0, 1]})
    drawn.update_xaxes(dtick=1 if len(found.steps) <= 20 else None)
    return drawn


def quality(curves: Sequence[tuple[str, pl.DataFrame]]) -> Any:
    """Quality curves above each other on one step axis; each of (name, (step, value))."""
    drawn = stacked_axes(len(curves))
    for i, (name, values) in enumerate(curves):
        series = thinned(values.select(x="step", y="value"))
        drawn.add_trace(
            line(series["x"], series["y"], plain(name), palette.SERIES[i % len(palette.SERIES)],
                 hovertemplate="%{y:.4g}"),
            row=i + 1, col=1,
        )  # fmt: skip
        drawn.add_annotation(
            text=plain(name), x=0, xref="paper", xanchor="left", y=1.0, yanchor="bottom",
            yref=f"y{i + 1 if i else ''} domain", showarrow=False, font={"size": 12},
        )  # fmt: skip
    drawn.update_xaxes(title_text="training step", row=len(curves), col=1)
    return drawn
