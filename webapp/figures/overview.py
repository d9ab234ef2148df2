"""Figures of the overview."""

from __future__ import annotations

from typing import Any, Final

from rlinsight.analyzers.result import Report
from rlinsight.webapp import palette
from rlinsight.webapp.figures.base import figure, line

POOL_COLOUR: Final = {
    "trainer": palette.STATE["train.update_actor"],
    "rollouter": palette.STATE["generate"],
}


def idle(report: Report) -> Any:
    """Idle ratio of each pool over the version windows."""
    x = [row.version for row in report.versions]
    traces = [
        line(
            x,
            [row.idle_ratio.get(name) for row in report.versions],
            name,
            POOL_COLOUR.get(name, palette.OTHER),
            hovertemplate="%{y:.1%}",
            line={"dash": "solid" if name == "trainer" else "dash"},
        )
        for name in report.pools
    ]
    drawn = figure(*traces, x="parameter version", y="idle")
    drawn.update_layout(yaxis_tickformat=".0%", showlegend=True)
    return drawn


def tokens(report: Report) -> Any:
    """Trained tokens per second in each version window, over all devices."""
    rows = [row for row in report.versions if row.trained_tokens is not None and row.duration_s]
    rate = [(row.trained_tokens or 0) / row.duration_s for row in rows]
    trace = line([row.version for row in rows], rate, "tokens/s", palette.SERIES[0],
                 hovertemplate="%{y:.3s} tokens/s<extra></extra>")  # fmt: skip
    return figure(trace, x="parameter version", y="tokens/s")
