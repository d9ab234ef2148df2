"""The timeline's page: a place that the scripts in `assets/timeline` fill."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dash import html

from rlinsight.webapp import urls
from rlinsight.webapp.timeline.first import first_rows
from rlinsight.webapp.timeline.provider import Indexes

if TYPE_CHECKING:
    from rlinsight.webapp.pages import Query
    from rlinsight.webapp.store import Run

#: Keys of the page's query; the scripts keep them up to date while one moves.
KEYS: Final = (
    "from", "to", "shut", "strip", "wide", "lane", "pick", "sel", "find", "bubbles", "panels",
    "table", "y",
)  # fmt: skip


def page(run: Run, query: Query) -> Any:
    """Return the page. The canvas follows a growing trace by itself."""
    state = {key: query[key] for key in KEYS if key in query}
    return html.Div(
        [
            html.H1(f"Timeline of {run.name}", className="visually-hidden"),
            html.Div(
                className="rl-timeline",
                id="timeline",
                **{"data-run": run.id, "data-state": json.dumps(state)},
            ),
            html.Noscript("The timeline is drawn by scripts, which this browser does not run."),
        ],
        className="timeline-page",
    )


def prefetch(run: Run, query: Query) -> list[str]:
    """Return the requests of the first view, for a view that is written to a file."""
    drawn = first_rows(Indexes().get(run, wait=True), query)
    asked = {"run": run.id, "px": "1600", "gauges": "1", **drawn}
    window = {key: query.get(key) for key in ("from", "to")}
    return [
        urls.link("/timeline/meta", {"run": run.id}),
        urls.link("/timeline/window", {**asked, **window}),
    ]
