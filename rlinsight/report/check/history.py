"""The trend of a baseline as one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING, Final

from rlinsight.report.check.words import headline
from rlinsight.report.units import amount

if TYPE_CHECKING:
    from rlinsight.analyzers.gate.result import CheckResult
    from rlinsight.analyzers.gate.trend import Trend, TrendPoint

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 170, 90, 26, 14
_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 2rem auto; }
body { padding: 0 1rem; } .axis { stroke: currentColor; opacity: .3; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; } svg { max-width: 100%; height: auto; }
text { font: 11px system-ui, sans-serif; fill: currentColor; }
.band { fill: #2b6cb0; opacity: .12; } .line { stroke: #2b6cb0; fill: none; stroke-width: 1.5; }
.bar { stroke: #2b6cb0; opacity: .5; } .trusted { fill: #2b6cb0; } .untrusted { fill: #999; }
.checked { fill: #38a169; } .failed { fill: #c53030; } main { display: grid; gap: 0 2rem;
grid-template-columns: repeat(auto-fill, minmax(min(100%, 560px), 1fr)); } p { margin: .2rem 0; }
"""


@dataclass(frozen=True)
class _Scale:
    """From values to pixels."""

    low: float
    high: float
    count: int

    def x(self, place: int) -> float:
        room = _WIDTH - _LEFT - 20
        return _LEFT + 10 + (room * place / (self.count - 1) if self.count > 1 else room / 2)

    def y(self, value: float) -> float:
        span = self.high - self.low or 1.0
        share = (value - self.low) / span
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def history_page(trends: Sequence[Trend], title: str, result: CheckResult | None = None) -> str:
    """Return the document: a chart per metric, the runs of one identity in order of time."""
    head = f"<meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
    checked = "" if result is None else f"<p><strong>{escape(headline(result))}</strong></p>"
    legend = (
        "<p>Blue runs are trusted, grey ones are not; the run under check is green, red where it "
        "fails. Bars are 95 % intervals over a run's windows, the band is the corridor around "
        "the mean of the trusted runs.</p>"
    )
    parts = [f"<h1>{escape(title)}</h1>{checked}{legend}"]
    for key in dict.fromkeys(trend.key for trend in trends):
        mine = [trend for trend in trends if trend.key == key]
        parts.append(f"<h2>{escape(mine[0].group)}</h2><main>{''.join(map(_chart, mine))}</main>")
    if not trends:
        parts.append("<p>No run has been accepted yet.</p>")
    body = "".join(parts)
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def _chart(trend: Trend) -> str:
    edges = [v for p in trend.points for v in (p.low, p.value, p.high) if v is not None]
    if trend.reference is not None and trend.corridor is not None:
        edges += [trend.reference - trend.corridor, trend.reference + trend.corridor]
    low, high = (min(edges), max(edges)) if edges else (0.0, 1.0)
    margin = (high - low) * 0.06 or abs(high) * 0.06 or 1.0
    scale = _Scale(low - margin, high + margin, len(trend.points))
    parts = [_axis(trend, scale), _band(trend, scale), _line(trend, scale)]
    parts += [_point(trend, i, point, scale) for i, point in enumerate(trend.points)]
    svg = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" '
        f'aria-label="{escape(trend.name)}">{"".join(parts)}</svg>'
    )
    return f"<section><h2>{escape(trend.name)}</h2>{svg}</section>"


def _axis(trend: Trend, scale: _Scale) -> str:
    base = _HEIGHT - _BOTTOM
    rows = [
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{scale.y(v):.1f}" '
        f'y2="{scale.y(v):.1f}"/><text x="{_LEFT - 6}" y="{scale.y(v) + 4:.1f}" '
        f'text-anchor="end">{escape(amount(v, trend.short_unit))}</text>'
        for v in (scale.low, (scale.low + scale.high) / 2, scale.high)
    ]
    for place in {0, len(trend.points) - 1}:
        if trend.points:
            anchor = "start" if place == 0 else "end"
            rows.append(
                f'<text x="{scale.x(place):.1f}" y="{base + 18}" text-anchor="{anchor}">'
                f"{escape(_day(trend.points[place]))}</text>"
            )
    return "".join(rows)


def _band(trend: Trend, scale: _Scale) -> str:
    if trend.reference is None or trend.corridor is None:
        return ""
    top = scale.y(trend.reference + trend.corridor)
    height = scale.y(trend.reference - trend.corridor) - top
    return (
        f'<rect class="band" x="{_LEFT}" width="{_WIDTH - _LEFT - 10}" y="{top:.1f}" '
        f'height="{height:.1f}"/>'
    )


def _line(trend: Trend, scale: _Scale) -> str:
    places = [
        f"{scale.x(i):.1f},{scale.y(point.value):.1f}"
        for i, point in enumerate(trend.points)
        if point.value is not None and point.state != "untrusted"
    ]
    return f'<polyline class="line" points="{" ".join(places)}"/>'


def _point(trend: Trend, place: int, point: TrendPoint, scale: _Scale) -> str:
    if point.value is None:
        return ""
    x, text = scale.x(place), f"{point.run}, {_day(point)}: {amount(point.value, trend.unit)}"
    bar = ""
    if point.low is not None and point.high is not None:
        bar = (
            f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{scale.y(point.low):.1f}" '
            f'y2="{scale.y(point.high):.1f}"/>'
        )
    return (
        f'{bar}<circle class="{point.state}" cx="{x:.1f}" cy="{scale.y(point.value):.1f}" r="4">'
        f"<title>{escape(text)}</title></circle>"
    )


def _day(point: TrendPoint) -> str:
    if point.recorded_ns is None:
        return point.run
    return datetime.fromtimestamp(point.recorded_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M")
