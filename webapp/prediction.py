"""The what-if of a run: its main knobs as sliders and switches, and the simulator's answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate import Effect
from rlinsight.errors import RlinsightError
from rlinsight.report.units import number, percent, seconds
from rlinsight.webapp import components, whatif
from rlinsight.webapp.components import signed
from rlinsight.webapp.store import Run
from rlinsight.webapp.whatif import Slider


def control(slider: Slider) -> Any:
    knob = slider.knob
    label = f"{knob.label}{f', {knob.unit}' if knob.unit else ''}"
    if slider.bounds is None:
        control = dmc.SegmentedControl(
            id={"type": "knob", "key": knob.name},
            value="on" if slider.value else "off",
            data=["off", "on"],
            size="xs",
            **{"aria-label": label},
        )
    else:
        low, high, step = slider.bounds
        control = dmc.Slider(
            id={"type": "knob", "key": knob.name},
            value=slider.value,
            min=low,
            max=high,
            step=step,
            precision=2 if isinstance(slider.now, float) else 0,
            marks=[{"value": slider.now, "label": f"{slider.now:g}"}],
            updatemode="drag",
            thumbLabel=label,
            size="sm",
            mb="lg",
        )
    stands = html.Span(_plain(slider.value), id=f"value-{knob.name}", className="knob-value")
    head = [html.Span(label), *([] if slider.bounds is None else [stands])]
    return html.Div([html.Div(head, className="knob-label"), control], className="knob")


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def prediction(run: Run, query: Mapping[str, str]) -> list[Any]:
    """Return what the simulator says of the knobs in `query`."""
    calibration = whatif.calibrated(run)
    knobs = whatif.sliders(calibration, query)
    wanted = whatif.changes(knobs)
    refused = [components.nothing(line) for line in whatif.not_taken(knobs, query)]
    try:
        found = whatif.effect(calibration, wanted)
    except RlinsightError as error:
        return [*refused, components.verdict(["This setting cannot be simulated.", f"{error}."])]
    return [
        *refused,
        components.verdict(_sentences(found)),
        components.table(("", "as it was", "predicted", "change"), _rows(found), numbers=(1, 2, 3)),
        *_settings(run, wanted),
        *_leaps(found),
    ]


def _sentences(found: Effect) -> list[str]:
    if not found.changes:
        return ["Move a knob to see what it would do.", "The run as it was, simulated:"]
    gain, wall = found.tokens_per_s_per_device, found.tokens_per_s
    first = f"{signed(gain)} throughput per device, {signed(wall)} in wall-clock terms."
    if gain.low is None or gain.high is None or gain.value is None:
        return [first]
    if gain.low < 0 < gain.high:
        return [first, f"{_span(gain)}: it may be nothing at all."]
    return [first, f"{_span(gain)} per device."]


def _span(change: Estimate) -> str:
    assert change.low is not None
    assert change.high is not None
    return f"95 % interval {percent(change.low)} to {percent(change.high)}"


def _rows(found: Effect) -> Iterator[list[Any]]:
    before, after = found.before, found.after
    for name, key, show, unit in (
        ("Throughput", "tokens_per_s_per_device", number, "tokens/s/device"),
        ("Throughput, all devices", "tokens_per_s", number, "tokens/s"),
        ("Step time", "step_s", seconds, ""),
        ("Trainer idle", "trainer_idle_ratio", percent, ""),
        ("Rollouter idle", "rollouter_idle_ratio", percent, ""),
        ("Mean lag", "mean_lag_versions", number, "versions"),
        ("Wasted tokens", "wasted_tokens_share", percent, ""),
    ):
        old, new = getattr(before, key), getattr(after, key)
        if new.value is not None:
            yield [
                name,
                _cell(old, show, unit),
                _cell(new, show, unit),
                _difference(old, new, show),
            ]


def _cell(value: Estimate, show: Any, unit: str) -> Any:
    if value.value is None:
        return "–"
    main = html.Span(f"{show(value.value)} {unit}".strip())
    if value.low is None or value.high is None:
        return main
    return [
        main,
        html.Br(),
        html.Span(f"{show(value.low)} to {show(value.high)}", className="change"),
    ]


def _unchanged(text: str) -> bool:
    return not any(digit in text for digit in "123456789")


def _difference(old: Estimate, new: Estimate, show: Any) -> str:
    if old.value is None or new.value is None:
        return "–"
    if show is percent:
        text = f"{(new.value - old.value) * 100:.1f} points"
    elif not old.value:
        text = show(new.value)
    else:
        text = percent(new.value / old.value - 1)
    if _unchanged(text):
        return "none"
    return text if text.startswith("-") else f"+{text}"


def _settings(run: Run, wanted: Mapping[str, Any]) -> Iterator[Any]:
    lines = whatif.overrides(run, wanted)
    if lines:
        text = " \\\n".join(lines)
        yield html.Div(
            [
                html.H3("Overrides"),
                html.Div(
                    [
                        html.Pre(text, className="overrides", tabIndex=0),
                        dcc.Clipboard(content=text, title="Copy the overrides", className="copy"),
                    ],
                    className="copyable",
                ),
            ],
            className="settings",
        )


def _leaps(found: Effect) -> Iterator[Any]:
    if found.after.outside:
        items = [html.Li(f"{leap.about}: {leap.reason}") for leap in found.after.outside]
        yield html.Div([html.H3("Beyond what was measured"), html.Ul(items)], className="leaps")
