"""What to change in a run: findings with their evidence, and sliders to try changes with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dash import dcc, html

from rlinsight.analyzers.advise import Finding
from rlinsight.analyzers.advise.finding import TIERS
from rlinsight.analyzers.simulate import Calibration, Effect
from rlinsight.report.units import number, percent, seconds
from rlinsight.webapp import components, later, urls, whatif
from rlinsight.webapp.components import section, signed
from rlinsight.webapp.figures import advisor as figures
from rlinsight.webapp.pages import Query
from rlinsight.webapp.prediction import control, prediction
from rlinsight.webapp.store import Run

#: So many findings stand on the overview.
_IN_SHORT: Final = 3
_UNITS: Final = {"ratio": percent, "s": seconds}
_FIRST_ALONE: Final = (
    "One experiment at a time: findings below it may hide its effect, or come true by it."
)


def page(run: Run, query: Query) -> Any:
    """Return the advice on a run, and the what-if: each moved knob stands in the query by name."""
    if run.report.verdict.alarm is not None:
        alarm = "What it stands at has to be found first."
        return components.message("No advice on a run that stands still", alarm)
    calibration = whatif.calibrated(run)
    found = whatif.sliders(calibration, query)
    return html.Div(
        [
            html.H1("Advisor"),
            later.part("advice", run),
            html.H2("What if", className="part-title"),
            html.Div(
                [
                    section(
                        "Change",
                        *(control(slider) for slider in found),
                        note="Where a knob stands in the run is marked below it.",
                        actions=[dcc.Link("as it was", href=urls.link("/advisor", run=run.id))],
                    ),
                    html.Div(prediction(run, query), id="prediction", **{"aria-live": "polite"}),
                ],
                className="whatif",
            ),
            dcc.Store(id="moved", data=""),
            section(
                "Settings that no other beats",
                later.part("pareto", run),
                note="Throughput per device against staleness, over two knobs of this mode; not "
                "beaten in throughput per device, wall-clock throughput and lag together.",
            ),
            _trust(calibration),
        ]
    )


def advice(run: Run) -> Any:
    """Return the findings of a run in the order of trying."""
    found = whatif.advice(run)
    cleared = [
        html.Li([html.B(rule.replace("_", " ")), f": {why}"]) for rule, why in found.cleared.items()
    ]
    return html.Div(
        [
            components.verdict([found.answer, _FIRST_ALONE if found.first else ""]),
            *(_finding(run, one) for one in found.findings),
            html.Details(
                [html.Summary(f"What {len(cleared)} other rules saw"), html.Ul(cleared)],
                className="cleared",
            ),
        ]
    )


def first_findings(run: Run) -> Any:
    """Return the first findings in short, for the overview."""
    found = whatif.advice(run)
    if not found.findings:
        return components.nothing(found.answer)
    rows = [
        [html.B(f"{i}."), one.says, _gain(one.effect)]
        for i, one in enumerate(found.findings[:_IN_SHORT], 1)
    ]
    return [
        components.table(("", "Finding", "Throughput per device"), rows, numbers=(2,)),
        html.P(
            dcc.Link("All findings, and what-if", href=urls.link("/advisor", run=run.id)),
            className="more",
        ),
    ]


def _gain(effect: Effect | None) -> Any:
    if effect is None:
        return "not predicted"
    gain = effect.tokens_per_s_per_device
    said = [html.B(signed(gain))]
    if gain.low is not None and gain.high is not None:
        span = f"{percent(gain.low).removesuffix(' %')} to {percent(gain.high)}"
        said += [html.Br(), html.Span(span, className="change")]
    return said


def _finding(run: Run, found: Finding) -> Any:
    tier = f"tier {found.tier}: {TIERS[found.tier]}"
    text = " \\\n".join(found.overrides)
    change = [
        html.Pre(text, className="overrides", tabIndex=0),
        dcc.Clipboard(content=text, title="Copy the overrides", className="copy"),
    ]
    return section(
        found.rule.replace("_", " ").capitalize(),
        html.P(found.says, className="says"),
        html.Div(
            [
                html.Div([html.H3("Evidence"), html.Ul([*_evidence(run, found)])]),
                html.Div([html.H3("Predicted"), *_predicted(found)]),
                html.Div(
                    [html.H3("Change"), html.Div(change if text else "", className="copyable")]
                ),
            ],
            className="finding",
        ),
        html.P([html.B("Risk "), found.risk], className="why"),
        html.P([html.B("To verify "), found.verify], className="why"),
        html.P([html.B("Wrong if "), found.falsifier], className="why"),
        note=tier + ("; may cost quality" if found.costs_quality else ""),
        actions=[_try(run, found)],
    )


def _try(run: Run, found: Finding) -> Any:
    changes = {name: _asked(value) for name, value in found.changes.items()}
    return dcc.Link("try it below", href=urls.link("/advisor", {"run": run.id, **changes}))


def _asked(value: object) -> object:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _evidence(run: Run, found: Finding) -> Iterator[Any]:
    for one in found.evidence:
        shown = _UNITS[one.unit](one.value) if one.unit in _UNITS else number(one.value, one.unit)
        links = [
            dcc.Link(f"at {start:.1f} s", href=urls.timeline(run.id, start, end))
            for start, end in one.windows
        ]
        spaced = [piece for link in links for piece in (" · ", link)]
        yield html.Li([f"{one.what}: ", html.B(shown), *spaced])


def _predicted(found: Finding) -> list[Any]:
    if found.effect is None:
        return [html.P("The simulator has no such knob.", className="change")]
    return [html.P(_gain(found.effect)), html.P("throughput per device", className="change")]


def pareto(run: Run) -> Any:
    """Return the Pareto plot of a run."""
    drawn = figures.pareto(whatif.pareto(run))
    return components.figure(drawn, "Throughput per device against mean lag", 320)


def _trust(calibration: Calibration) -> Any:
    source = (
        f"Calibrated from {calibration.versions} versions of this run"
        if calibration.source == "trace"
        else "Calibrated from what the framework logged only, which is coarse"
    )
    items = [html.Li(note) for note in calibration.notes]
    return section(
        "How far to trust this", html.Ul(items) if items else html.Div(), note=f"{source}."
    )
