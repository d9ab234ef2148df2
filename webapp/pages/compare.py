"""Several runs side by side: what was set differently, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from rlinsight.analyzers.compare.configs import numeric
from rlinsight.analyzers.compare.curves import IDLE
from rlinsight.analyzers.compare.result import Comparison
from rlinsight.analyzers.gate.result import MetricVerdict
from rlinsight.report.compare import words
from rlinsight.report.units import amount
from rlinsight.webapp import components, urls
from rlinsight.webapp.comparison import MOST, comparison, left_out, opened
from rlinsight.webapp.components import section
from rlinsight.webapp.figures import compare as figures
from rlinsight.webapp.grid import Column, downloads, grid
from rlinsight.webapp.pages import Query
from rlinsight.webapp.store import Run, Store
from rlinsight.webapp.text import shortened


def page(store: Store, query: Query) -> Any:
    """Return the comparison of the runs in `runs=`; the first one is the reference."""
    runs, problems = opened(store, query)
    parts = [html.H1("Compare"), _picker(store, urls.ids(query, "runs"))]
    parts += [components.nothing(line) for line in left_out(store, query)]
    parts += [components.nothing(f"Left out: {name}: {why}") for name, why in problems.items()]
    if len(runs) < 2:
        return html.Div([*parts, components.nothing("Choose two runs or more.")])
    found = comparison(runs, query)
    asked = {key: query[key] for key in ("runs", "knob") if key in query}
    return html.Div(
        [
            *parts,
            components.verdict(words.headline(found)),
            *_response(found, asked),
            _metrics(runs, found, asked),
            components.columns(*_curves(found)),
            _facts(runs, found),
            _configuration(runs, found, asked),
            section("Notes", html.Ul([html.Li(line) for line in words.notes(found)])),
        ]
    )


def _picker(store: Store, wanted: Sequence[str]) -> Any:
    found = store.found()
    return dmc.MultiSelect(
        id={"type": "query", "key": "runs"},
        label="Runs",
        description="The first one is the reference.",
        data=[{"value": key, "label": shortened(one.name)} for key, one in found.items()],
        value=[run_id for run_id in wanted if run_id in found][:MOST],
        maxValues=MOST,
        searchable=True,
        clearable=True,
        hidePickedOptions=True,
        mb="lg",
        maw=900,
    )


def _name(run: Run, i: int) -> Any:
    dot = html.Span(className="swatch", style={"backgroundColor": figures.colour(i)})
    name = html.Span(shortened(run.name, 40), className="trace-text", title=run.name)
    return [dot, " ", dcc.Link(name, href=urls.link("/overview", run=run.id))]


def _metrics(runs: Sequence[Run], found: Comparison, asked: Query) -> Any:
    rows = [[row.name, *map(_cell, row.cells)] for row in found.metrics if words.is_shown(row)]
    return section(
        "Figures, with 95 % intervals",
        components.table(["", *(_name(run, i) for i, run in enumerate(runs))], rows),
        note="The change is against the first run at equal response length; bold where it is real: "
        "large enough to matter, and more than noise.",
        actions=downloads("comparison", asked),
    )


def _cell(cell: MetricVerdict | None) -> Any:
    if cell is None or cell.value is None:
        return "–"
    change = words.change(cell)
    if not change:
        return words.measured(cell)
    text = f"{change} {words.verdict(cell)}"
    told = html.B(text) if words.is_real(cell) else text
    return [words.measured(cell), html.Br(), html.Span(told, className="change")]


def _curves(found: Comparison) -> Iterator[Any]:
    for name in dict.fromkeys(one.figure for run in found.runs for one in run.curves):
        mine = [(run.name, one) for run in found.runs for one in run.curves if one.figure == name]
        shown = [(run, one.x, one.y) for run, one in mine]
        drawn = figures.curves(shown, mine[0][1].axis, name, percent=name == IDLE)
        yield section(shortened(name), components.figure(drawn, f"{name} of each run"))


def _response(found: Comparison, asked: Query) -> Iterator[Any]:
    numbers = numeric(found.differing)
    if not numbers:
        return
    variable = found.series.variable if found.series is not None else None
    picker = dmc.Select(
        id={"type": "query", "key": "knob"},
        data=[{"value": key, "label": shortened(key)} for key in numbers],
        value=variable.key if variable else None,
        placeholder="Draw the response to a number",
        size="xs",
        w=420,
        searchable=True,
        allowDeselect=False,
        **{"aria-label": "Knob"},
    )
    if found.series is None or variable is None:
        yield section("Response to one knob", components.nothing(
            f"Not a series of one variable: {found.why_no_series}."), actions=[picker])  # fmt: skip
        return
    parts = [
        components.figure(
            figures.response(one, variable.name), f"{one.metric} against {variable.key}", 260
        )
        for one in found.series.responses
    ]
    yield section(
        "Response to one knob",
        components.columns(*parts),
        note="Each setting with its 95 % interval; shaded from where on no later setting is really "
        "better.",
        actions=[picker, *downloads("response", asked)],
    )


def _facts(runs: Sequence[Run], found: Comparison) -> Any:
    rows = [
        [fact.name, *(amount(value, fact.unit) for value in fact.values)] for fact in found.facts
    ]
    head = ["", *(_name(run, i) for i, run in enumerate(runs))]
    return section(
        "Beside them",
        components.table(head, rows),
        note="Over each run's own steady window, without a test of their differences.",
    )


def _configuration(runs: Sequence[Run], found: Comparison, asked: Query) -> Any:
    title = "Configuration"
    if not found.differing:
        return section(title, components.nothing("The recorded configurations are the same."))
    rows = [
        {"key": key, **{f"run{i}": _value(value) for i, value in enumerate(values)}}
        for key, values in found.differing.items()
    ]
    columns = [Column("key", "Key", flex=2.2, min_px=230)]
    columns += [
        Column(f"run{i}", shortened(run.name, 30), min_px=110) for i, run in enumerate(runs)
    ]
    return section(
        title,
        grid("config-grid", rows, columns, label="Configuration keys that differ"),
        note=f"The {len(rows)} keys that differ; places and lengths of runs are left out.",
        actions=downloads("configuration", asked),
    )


def _value(value: str | None) -> str:
    return "(absent)" if value is None else shortened(value, 200)
