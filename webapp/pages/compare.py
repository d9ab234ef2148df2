"""Several runs side by side: what was set differently, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import dash_mantine_components as dmc
from dash import dcc, html

from rlinsight.analyzers.quality.guard import reward_curve
from rlinsight.analyzers.result import Estimate
from rlinsight.errors import RlinsightError
from rlinsight.report.units import percent
from rlinsight.webapp import components, configs, merit, urls
from rlinsight.webapp.components import section
from rlinsight.webapp.figures import compare as figures
from rlinsight.webapp.grid import Column, grid
from rlinsight.webapp.pages import Query
from rlinsight.webapp.store import Run, Store, UnknownRunError
from rlinsight.webapp.text import shortened

#: More runs than this are not compared at once.
_MOST: Final = 12


def page(store: Store, query: Query) -> Any:
    """Return the comparison of the runs in `runs=`; the first one is the reference."""
    wanted = urls.ids(query, "runs")[:_MOST]
    runs, problems = _opened(store, wanted)
    parts = [html.H1("Compare"), _picker(store, wanted), *problems]
    if len(runs) < 2:
        return html.Div([*parts, components.nothing("Choose two runs or more.")])
    differing = configs.differences([run.trace.manifest.config for run in runs])
    return html.Div(
        [
            *parts,
            components.verdict(_sentences(runs)),
            *_response(runs, differing, query.get("knob")),
            _metrics(runs),
            components.columns(*_curves(runs)),
            _configuration(runs, differing),
        ]
    )


def _opened(store: Store, wanted: Sequence[str]) -> tuple[list[Run], list[Any]]:
    runs, problems = [], []
    for run_id in wanted:
        try:
            run = store.run(run_id)
            _ = run.report
            runs.append(run)
        except UnknownRunError:
            continue
        except RlinsightError as error:
            problems.append(components.nothing(f"Left out: {run_id}: {error}"))
    return runs, problems


def _picker(store: Store, wanted: Sequence[str]) -> Any:
    found = store.found()
    return dmc.MultiSelect(
        id={"type": "query", "key": "runs"},
        label="Runs",
        description="The first one is the reference.",
        data=[{"value": key, "label": shortened(one.name)} for key, one in found.items()],
        value=[run_id for run_id in wanted if run_id in found],
        maxValues=_MOST,
        searchable=True,
        clearable=True,
        hidePickedOptions=True,
        mb="lg",
        maw=900,
    )


def _sentences(runs: Sequence[Run]) -> list[str]:
    rates = [run.report.throughput.tokens_per_s_per_device for run in runs]
    known = [(rate.value, i) for i, rate in enumerate(rates) if rate.value is not None]
    if len(known) < 2:
        return ["The throughput of these runs is not known, so they cannot be ranked."]
    best, i = max(known)
    worst, j = min(known)
    gap = f"{percent(best / worst - 1)} more" if worst else "the most"
    first = f"{runs[i].name} trains {gap} tokens per second and device than {runs[j].name}"
    sure = merit.differ(rates[i], rates[j])
    more = (
        "Their 95 % intervals do not overlap: the difference is real."
        if sure
        else "Their 95 % intervals overlap, or are not known: the difference may be noise."
    )
    return [f"{first}.", more]


def _metrics(runs: Sequence[Run]) -> Any:
    rows = []
    for figure in merit.FIGURES:
        values = [figure.of(run.report) for run in runs]
        if any(value.value is not None for value in values):
            cells = [
                _cell(figure, value, values[0], first=i == 0) for i, value in enumerate(values)
            ]
            rows.append([figure.name, *cells])
    head = ["", *(_name(run, i) for i, run in enumerate(runs))]
    return section(
        "Figures, with 95 % intervals",
        components.table(head, rows),
        note="In brackets the interval over version windows. The change is against the first run; "
        "bold where the intervals do not overlap.",
    )


def _name(run: Run, i: int) -> Any:
    dot = html.Span(className="swatch", style={"backgroundColor": figures.colour(i)})
    name = html.Span(shortened(run.name, 40), className="trace-text", title=run.name)
    return [dot, " ", dcc.Link(name, href=urls.link("/overview", run=run.id))]


def _cell(figure: merit.Figure, value: Estimate, reference: Estimate, *, first: bool) -> Any:
    text = merit.shown(value, figure)
    if first or value.value is None or not reference.value:
        return text
    change = _change(figure, value.value, reference.value)
    told = html.B(change) if merit.differ(value, reference) else change
    return [text, html.Br(), html.Span(told, className="change")]


def _change(figure: merit.Figure, value: float, reference: float) -> str:
    """Return a share's change in points, anything else's in percent."""
    if figure.show is percent:
        text = f"{(value - reference) * 100:.1f} points"
    else:
        text = percent(value / reference - 1)
    return text if text.startswith("-") else f"+{text}"


def _curves(runs: Sequence[Run]) -> Iterator[Any]:
    idle, rate, reward = [], [], []
    for run in runs:
        rows = run.report.versions
        at = [row.version for row in rows]
        idle.append((run.name, at, [row.idle_ratio.get("trainer") for row in rows]))
        rate.append((run.name, at, [_rate(row.trained_tokens, row.duration_s) for row in rows]))
        trace = run.trace
        rewards, _ = reward_curve(trace.samples.collect(), trace.metrics.collect())
        reward.append((run.name, rewards["step"].to_list(), rewards["value"].to_list()))
    for title, found, x, y, share in (
        ("Trained tokens per second", rate, "parameter version", "tokens/s, all devices", False),
        ("Trainer idle", idle, "parameter version", "idle", True),
        ("Mean reward", reward, "training step", "reward", False),
    ):
        shown = [curve for curve in found if any(value is not None for value in curve[2])]
        if shown:
            drawn = figures.curves(shown, x, y, percent=share)
            yield section(title, components.figure(drawn, f"{title} of each run"))


def _rate(tokens: int | None, duration_s: float) -> float | None:
    return tokens / duration_s if tokens is not None and duration_s else None


def _response(
    runs: Sequence[Run], differing: Mapping[str, Sequence[Any]], wanted: str | None
) -> Iterator[Any]:
    found = configs.knobs(differing)
    if not found or len({run.trace.mode for run in runs}) > 1:
        return
    knob = wanted if wanted in found else next(iter(found))
    picker = dmc.Select(
        id={"type": "query", "key": "knob"},
        data=[{"value": key, "label": shortened(key)} for key in found],
        value=knob,
        size="xs",
        w=420,
        searchable=True,
        allowDeselect=False,
        **{"aria-label": "Knob"},
    )
    points = [
        (run.name, value, run.report.throughput.tokens_per_s_per_device)
        for run, value in zip(runs, found[knob], strict=True)
    ]
    drawn = figures.response(points, knob, "tokens/s/device")
    yield section(
        "Response to one knob",
        components.figure(drawn, f"Throughput against {knob}", 260),
        note="Throughput with its 95 % interval; where intervals overlap, more of it buys nothing "
        f"that can be told from noise. {len(differing)} keys differ between these runs.",
        actions=[picker],
    )


def _configuration(runs: Sequence[Run], differing: Mapping[str, Sequence[Any]]) -> Any:
    title = "Configuration"
    if not differing:
        return section(title, components.nothing("The recorded configurations are the same."))
    rows = [
        {"key": key, **{f"run{i}": _value(value) for i, value in enumerate(row)}}
        for key, row in differing.items()
    ]
    columns = [Column("key", "Key", flex=2.2, min_px=230)]
    columns += [
        Column(f"run{i}", shortened(run.name, 30), min_px=110) for i, run in enumerate(runs)
    ]
    return section(
        title,
        grid("config-grid", rows, columns, label="Configuration keys that differ"),
        note=f"The {len(rows)} keys of the resolved configuration that differ.",
    )


def _value(value: Any) -> str:
    return "null" if value is None else shortened(str(value), 200)
