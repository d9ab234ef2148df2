"""The figures of the HTML report. Imports plotly; see the `web` extra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from rlinsight.analyzers.device_time.level_of_detail import buckets
from rlinsight.analyzers.device_time.states import PRIORITY, UNATTRIBUTED, kind

if TYPE_CHECKING:
    import polars as pl

    from rlinsight.analyzers.result import Report

_BUCKETS = 600
_MAX_DEVICES = 64
_HUES = {"useful": (205, 150), "overhead": (30, 55), "bubble": (345, 300)}


def figures(report: Report) -> Iterator[tuple[str, go.Figure]]:
    """Yield (title, figure) for what the report holds."""
    if not report.segments.is_empty():
        yield _timeline_title(report), timeline(report)
        yield "Device time", ledger_bars(report)
    if report.versions:
        yield "Idle per version window", idle_per_version(report)
    lags = report.staleness.worst_token.counts
    if lags:
        yield "Lag of trained samples", histogram(lags, "lag of the first token, versions")
    if report.lengths.histogram:
        yield "Response lengths", length_histogram(report)


def _timeline_title(report: Report) -> str:
    devices = report.segments["device"].n_unique()
    return (
        f"Timeline, {_MAX_DEVICES} of {devices} devices" if devices > _MAX_DEVICES else "Timeline"
    )


def colour(state: str) -> str:
    """Return a fixed colour: one range of hues each for useful, overhead and bubble."""
    if state == UNATTRIBUTED:
        return "#bbbbbb"
    same = [other for other in PRIORITY if kind(other) == kind(state)]
    first, last = _HUES[kind(state)]
    share = same.index(state) / max(1, len(same) - 1)
    return f"hsl({first + (last - first) * share:.0f}, 62%, {58 - 14 * (same.index(state) % 2)}%)"


def timeline(report: Report) -> go.Figure:
    """One row a device; a bucket's bar is split by the share of each state in it."""
    window = (report.window.start_ns, report.window.end_ns)
    devices = report.segments["device"].unique(maintain_order=True).to_list()[:_MAX_DEVICES]
    table = buckets(report.segments, devices, window, _BUCKETS)
    figure = go.Figure()
    for (state,), rows in table.group_by("state", maintain_order=True):
        figure.add_trace(_strip(rows, str(state), devices))
    figure.update_layout(
        barmode="overlay", bargap=0, height=110 + 42 * len(devices), legend_orientation="h",
        margin={"t": 10, "l": 120}, xaxis_title="seconds since the window began",
        yaxis={"tickvals": list(range(len(devices))), "ticktext": devices, "autorange": "reversed"},
    )  # fmt: skip
    return figure


def _strip(rows: pl.DataFrame, state: str, devices: list[str]) -> go.Bar:
    places = {device: i for i, device in enumerate(devices)}
    return go.Bar(
        x=rows["middle_s"], width=rows["width_s"], y=rows["share"] * 0.9,
        base=[places[d] - 0.45 + b * 0.9 for d, b in rows.select("device", "below").iter_rows()],
        name=state, marker_color=colour(state), marker_line_width=0,
        customdata=rows.select("device", "share", "longest_s").rows(),
        hovertemplate="%{customdata[0]}<br>%{customdata[1]:.1%} of this bucket, longest "
        "%{customdata[2]:.3f} s<br>%{x:.3f} s",
    )  # fmt: skip


def ledger_bars(report: Report) -> go.Figure:
    """Stacked shares per pool."""
    figure = go.Figure()
    states = [*PRIORITY, UNATTRIBUTED]
    used = {state for pool in report.pools.values() for state in pool.ledger}
    for state in (s for s in states if s in used):
        shares = [
            pool.ledger.get(state, 0) / pool.device_seconds if pool.device_seconds else None
            for pool in report.pools.values()
        ]
        figure.add_trace(
            go.Bar(y=list(report.pools), x=shares, name=state, orientation="h",
                   marker_color=colour(state))
        )  # fmt: skip
    figure.update_layout(
        barmode="stack", xaxis_tickformat=".0%", height=240, legend_orientation="h"
    )
    return figure


def idle_per_version(report: Report) -> go.Figure:
    """Idle ratio of each pool over the version windows."""
    figure = go.Figure()
    for name in report.pools:
        figure.add_trace(
            go.Scatter(
                x=[row.version for row in report.versions],
                y=[row.idle_ratio.get(name) for row in report.versions],
                name=f"{name} idle", mode="lines+markers",
            )
        )  # fmt: skip
    figure.update_layout(
        xaxis_title="parameter version", yaxis_tickformat=".0%", height=300,
        yaxis_rangemode="tozero",
    )  # fmt: skip
    return figure


def histogram(counts: dict[int, int], title: str) -> go.Figure:
    """Bars of exact counts."""
    figure = go.Figure(go.Bar(x=list(counts), y=list(counts.values())))
    figure.update_layout(xaxis_title=title, yaxis_title="samples", height=300)
    return figure


def length_histogram(report: Report) -> go.Figure:
    """Response lengths in equal bins, with the cap where there is one."""
    bins = report.lengths.histogram
    figure = go.Figure(
        go.Bar(
            x=[(b.from_tokens + b.to_tokens) / 2 for b in bins],
            width=[b.to_tokens - b.from_tokens for b in bins],
            y=[b.samples for b in bins],
        )
    )
    cap = report.lengths.cap.response_cap_tokens
    if cap is not None:
        figure.add_vline(x=cap, line_dash="dot", annotation_text="cap")
    figure.update_layout(xaxis_title="response tokens", yaxis_title="samples", height=300)
    return figure
