"""Every trace below the served folder, in one table."""

from __future__ import annotations

from typing import Any, Final

from dash import dcc, html

from rlinsight.report.units import counted
from rlinsight.webapp import components, tables, urls, words
from rlinsight.webapp.comparison import unknown
from rlinsight.webapp.grid import Column, downloads, grid
from rlinsight.webapp.pages import Query
from rlinsight.webapp.store import Store
from rlinsight.webapp.summary import Summary

#: Reading many traces takes long; the rest comes with the next refresh.
_BUDGET_S: Final = 2.0

_COLUMNS: Final = (
    Column("run", "Run", "link", 1.8, 130),
    Column("state", "State", flex=0.9, min_px=82),
    Column("mode", "Mode", flex=1.1, min_px=124),
    Column("model", "Model", flex=1.2, min_px=68),
    Column("devices", "Devices", flex=0.9, min_px=88, tooltip="trainer + rollout"),
    Column("duration_s", "Duration", "seconds", 0.6, 74),
    Column("verdict", "Verdict", flex=2.4, min_px=178, wrap=True),
    Column("tokens_per_s_per_device", "Tokens/s per device", "number", 0.7, 82),
    Column("trainer_idle_ratio", "Trainer idle", "percent", 0.6, 68),
    Column("rollouter_idle_ratio", "Rollouter idle", "percent", 0.6, 78),
)

_BOUNDS: Final = {
    "rollout": "rollout-bound",
    "trainer": "trainer-bound",
    "pipeline": "sides alternate",
    "balanced": "balanced",
    "unknown": "bound unknown",
}


def _unknown(store: Store, query: Query) -> list[Any]:
    missing = unknown(store, query)
    return [components.nothing(f"Not selected: {words.no_such_runs(missing)}.")] if missing else []


def page(store: Store, query: Query) -> Any:
    """Return the list of runs; those in `runs=` are selected for comparison."""
    found = store.found()
    rows = [known for known in store.summaries(_BUDGET_S) if known is not None]
    if not found:
        hint = "Record one with `rlinsight run`, or serve another folder."
        return components.message("No traces here yet", hint)
    selected = [run_id for run_id in urls.ids(query, "runs") if run_id in found]
    frame = tables.runs(rows)
    shown = frame.to_dicts()
    for row, known in zip(shown, rows, strict=True):
        row |= {"run_href": urls.link("/overview", run=known.id), "verdict": _verdict(known)}
    waiting = len(found) - len(rows)
    return html.Div(
        [
            html.H1("Runs"),
            *_unknown(store, query),
            components.section(
                counted(len(found), "run"),
                grid(
                    "runs-grid",
                    shown,
                    _COLUMNS,
                    label="Runs",
                    select=True,
                    selected=selected,
                    row_px=54,
                ),
                note=f"reading {counted(waiting, 'more trace')} …" if waiting else "",
                actions=[_compare(selected), *downloads("runs", {})],
            ),
        ]
    )


def _compare(selected: list[str]) -> Any:
    ready = len(selected) > 1
    return dcc.Link(
        "Compare selected" if ready else "Select runs to compare",
        id="compare-selected",
        href=urls.link("/compare", runs=",".join(selected)) if ready else "/compare",
        className="button" if ready else "button button-off",
    )


def _verdict(known: Summary) -> str:
    if known.problem is not None:
        return known.problem
    if known.alarm is not None:
        return f"ALARM: {known.alarm}"
    bound = _BOUNDS.get(known.bound or "unknown", known.bound or "")
    return f"{bound} · {known.largest_bubble}" if known.largest_bubble else bound
