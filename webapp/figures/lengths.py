"""Figures of the lengths page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from rlinsight.analyzers.engines.stragglers import BatchSpeed
from rlinsight.analyzers.lengths.statistics import LengthRow, Lengths
from rlinsight.analyzers.lengths.tail import TailCost
from rlinsight.webapp import palette
from rlinsight.webapp.figures.base import band, figure, line, rule
from rlinsight.webapp.text import plain

_LENGTH: Final = palette.STATE["generate"]
_TAIL: Final = palette.STATE["bubble.long_tail"]


def histogram(lengths: Lengths) -> Any:
    """How long the responses are, and where they were cut off."""
    bins = lengths.histogram
    bars = go.Bar(
        x=[(b.from_tokens + b.to_tokens) / 2 for b in bins],
        width=[b.to_tokens - b.from_tokens for b in bins],
        y=[b.samples for b in bins],
        marker={"color": _LENGTH, "line": {"width": 0}},
        customdata=[[b.from_tokens, b.to_tokens] for b in bins],
        hovertemplate="%{customdata[0]} to %{customdata[1]} tokens: %{y} samples<extra></extra>",
    )
    drawn = figure(bars, x="response tokens", y="samples", hovermode="closest", bargap=0.05)
    cap = lengths.cap
    found = cap.response_cap_tokens or cap.configured_cap_tokens
    if found is not None:
        rule(drawn, x=found, text=f"cap, {found} tokens")
    return drawn


def by_step(rows: Sequence[LengthRow]) -> Any:
    """Percentile bands over the training steps."""
    x = [row.key for row in rows]
    traces = [
        *band(x, [row.p50 for row in rows], [row.p95 for row in rows], "p50 to p95", _LENGTH),
        line(x, [row.mean for row in rows], "mean", _LENGTH, hovertemplate="%{y:.4g}"),
        line(x, [row.p95 for row in rows], "p95", palette.SERIES[0], hovertemplate="%{y:.4g}",
             mode="lines", line={"width": 1.2, "dash": "dot"}),
        line(x, [row.max for row in rows], "max", _TAIL, hovertemplate="%{y}", mode="markers"),
    ]  # fmt: skip
    return figure(*traces, x="training step", y="response tokens")


def cap_by_step(rows: Sequence[LengthRow]) -> Any:
    """Share at the cap over the training steps."""
    x = [row.key for row in rows]
    trace = line(x, [row.cap_share for row in rows], "at the cap", _TAIL, hovertemplate="%{y:.1%}")
    drawn = figure(trace, x="training step", y="share at the cap")
    drawn.update_layout(yaxis_tickformat=".0%")
    return drawn


def tail(found: TailCost) -> Any:
    """Tail cost of each replica, the dearest on top."""
    rows = sorted(found.replicas, key=lambda row: row.cost_device_seconds)[-40:]
    return _sideways(
        [row.lane for row in rows],
        [row.cost_device_seconds for row in rows],
        "device-s lost in tails",
        _TAIL,
        "%{x:.3g} device-s",
    )


def longest(batch: BatchSpeed) -> Any:
    """Time per token of each worker's longest response: alike for a long tail."""
    rows = sorted(batch.workers, key=lambda row: -row.tok_s_of_longest)[-40:]
    return _sideways(
        [row.lane for row in rows],
        [1e3 / row.tok_s_of_longest for row in rows],
        "ms per token of the longest response",
        palette.SERIES[0],
        "%{x:.3g} ms/token",
    )


def _sideways(names: list[str], values: list[float], x: str, colour: str, hover: str) -> Any:
    bars = go.Bar(
        y=[plain(name, 24) for name in names], x=values, orientation="h", width=0.6,
        marker_color=colour,
        hovertemplate=f"%{{y}}: {hover}<extra></extra>",
    )  # fmt: skip
    drawn = figure(bars, x=x, hovermode="closest")
    drawn.update_layout(yaxis={"type": "category", "showgrid": False})
    return drawn
