"""The tables of an answer, as sections that every renderer draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate.predict import Effect, Prediction
from rlinsight.analyzers.simulate.reproduce import RELATIVE, Compared
from rlinsight.analyzers.simulate.sweep import Point, Sweep
from rlinsight.report.section import Section
from rlinsight.report.units import counted, number, percent, relative, seconds
from rlinsight.report.whatif.answer import FIGURE_OF, Answer, Objective, disagree
from rlinsight.report.whatif.fits import fits

Format = Callable[["float | None"], str]

#: Figure, its title, and how it is written.
FIGURES: Final[tuple[tuple[str, str, Format], ...]] = (
    ("tokens_per_s_per_device", "tokens/s per device", number),
    ("tokens_per_s", "tokens/s, whole job", number),
    ("samples_per_s", "samples/s", number),
    ("step_s", "step", seconds),
    ("trainer_idle_ratio", "trainer idle", percent),
    ("rollouter_idle_ratio", "rollouter idle", percent),
    ("trainer_wait_share", "trainer waits for samples", percent),
    ("mean_lag_versions", "mean lag, versions", number),
    ("wasted_tokens_share", "dropped tokens", percent),
    ("aborted_per_sample", "aborts per sample", number),
)
_TITLES: Final = {name: (title, write) for name, title, write in FIGURES}


def sections(answer: Answer) -> list[Section]:
    """Return the tables of an answer in the order of reading."""
    found = [_compared(answer)] if answer.compared else []
    if answer.effect is not None:
        found.append(_effect(answer.effect))
    elif answer.sweep is None:
        found.append(_prediction(answer.prediction))
    if answer.sweep is not None:
        found.append(_sweep(answer.sweep))
    rest = [fits(answer.calibration), _outside(answer)]
    return [*found, *(section for section in rest if section.rows)]


def headline(answer: Answer) -> list[str]:
    """Return the answer in sentences: the change, its effect by both objectives, the doubts."""
    lines = [f"Simulated from the {answer.calibration.source}: {_setting(answer)}."]
    if answer.effect is not None:
        lines = _change(answer, answer.effect)
    if answer.sweep is not None:
        lines += _best(answer.sweep, answer.objective)
    return lines


def _change(answer: Answer, effect: Effect) -> list[str]:
    change = ", ".join(f"{name} = {value_text(value)}" for name, value in effect.changes.items())
    lines = [
        f"{change}: {signed(effect.tokens_per_s_per_device)} throughput per device, "
        f"{signed(effect.tokens_per_s)} wall-clock throughput."
    ]
    if answer.objective is not None:
        lines.append(f"Objective: {answer.objective}.")
    elif disagree(effect):
        lines.append(
            "The two objectives disagree: choose one with --objective per-device or wall-clock."
        )
    else:
        lines.append("Objective: both, since they agree in direction here.")
    lines.append(_lag_change(effect))
    if answer.overrides:
        lines.append(f"Overrides: {' '.join(answer.overrides)}")
    if answer.unmapped:
        names = ", ".join(answer.unmapped)
        lines.append(f"No single override sets {names}; docs/simulator.md says what does.")
    return lines


def _best(sweep: Sweep, objective: Objective | None) -> list[str]:
    """Return which setting of a sweep is best by the objective, or by either without one."""
    lines = []
    for name, figure in FIGURE_OF.items():
        known = [p for p in sweep.points if p.prediction is not None]
        if known and objective in (None, name):
            best = max(known, key=lambda point: _value(point, figure))
            lines.append(f"Highest {name} throughput: {change_text(best.changes)}.")
    return lines


def _value(point: Point, figure: str) -> float:
    value: float | None = getattr(point.prediction, figure).value
    return value or 0.0


def signed(change: Estimate) -> str:
    """Return a relative change with its interval: `+12.3 % (+9.1 to +15.2)`."""
    return relative(change.value, change.low, change.high)


def with_interval(value: Estimate, write: Format) -> str:
    """Return a figure with its interval in brackets."""
    if value.low is None or value.high is None:
        return write(value.value)
    return f"{write(value.value)} [{write(value.low)}, {write(value.high)}]"


def change_text(changes: dict[str, object]) -> str:
    """Return `name=value` of each change."""
    return " ".join(f"{name}={value_text(value)}" for name, value in changes.items())


def value_text(value: object) -> str:
    """Return a value of a knob as `--set` takes it: `none`, `true`, `0.5`."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _setting(answer: Answer) -> str:
    knobs = answer.prediction.knobs
    versions = counted(answer.prediction.versions, "version")
    return (
        f"{knobs.mode}, {knobs.trainer_devices} trainer and {knobs.rollout_devices} rollout "
        f"devices, {versions} x {counted(answer.prediction.seeds, 'seed')}"
    )


def _lag_change(effect: Effect) -> str:
    before, after = effect.before.mean_lag_versions.value, effect.after.mean_lag_versions.value
    return f"Mean lag: {number(before, 'versions')} before, {number(after, 'versions')} after."


def _compared(answer: Answer) -> Section:
    rows = tuple(comparison(row) for row in answer.compared)
    note = (
        "Over the versions of the recorded window. 95 % intervals are of one run: its own "
        "randomness, the calibration's uncertainty, and an allowance for what was not measured."
    )
    return Section(
        "The recorded run, simulated", ("figure", "recorded", "simulated", "error"), rows, note
    )


def comparison(row: Compared) -> tuple[str, ...]:
    """Return the cells of one compared figure: title, recorded, simulated, error."""
    title, write = _TITLES[row.figure]
    if row.error is None:
        error = "-"
    elif row.figure in RELATIVE:
        error = f"{row.error * 100:+.1f} %"
    elif row.figure == "mean_lag_versions":
        error = f"{row.error:+.2f} versions"
    else:
        error = f"{row.error * 100:+.1f} points"
    return title, write(row.recorded), with_interval(row.simulated, write), error


def _prediction(prediction: Prediction) -> Section:
    rows = [
        (title, with_interval(getattr(prediction, name), write))
        for name, title, write in FIGURES
        if getattr(prediction, name).value is not None
    ]
    if (check := prediction.lag_check) is not None:
        rows.append((f"mean lag by the closed form ({check.regime})", number(check.expected)))
    return Section("Simulated", ("figure", "value"), tuple(rows))


def _effect(effect: Effect) -> Section:
    rows = [
        (title, with_interval(getattr(effect.before, name), write),
         with_interval(getattr(effect.after, name), write))
        for name, title, write in FIGURES
        if getattr(effect.after, name).value is not None
    ]  # fmt: skip
    note = "Both are simulated with the same random numbers: the difference is the change's."
    return Section("Effect", ("figure", "as it was", "changed"), tuple(rows), note)


def _sweep(sweep: Sweep) -> Section:
    rows = tuple(_point(sweep, point) for point in sweep.points)
    note = (
        "* no other setting is better in throughput per device, wall-clock throughput or mean lag "
        "without being worse in another. Changes are against the run as it was."
    )
    columns = (
        *sweep.varied, "tokens/s per device", "change", "tokens/s, whole job", "change",
        "trainer idle", "rollouter idle", "mean lag", "best",
    )  # fmt: skip
    return Section("Sweep", columns, rows, note)


def _point(sweep: Sweep, point: Point) -> tuple[str, ...]:
    values = tuple(value_text(point.changes[name]) for name in sweep.varied)
    if point.prediction is None:
        return (*values, point.reason or "-", *("-" for _ in range(7)))
    return (*values, *_figures(sweep.base, point.prediction), "*" if point.best else "")


def _figures(base: Prediction, found: Prediction) -> Sequence[str]:
    cells = []
    for name in ("tokens_per_s_per_device", "tokens_per_s"):
        value: Estimate = getattr(found, name)
        old: Estimate = getattr(base, name)
        cells += [with_interval(value, number), _relative(value.value, old.value)]
    return [
        *cells,
        percent(found.trainer_idle_ratio.value),
        percent(found.rollouter_idle_ratio.value),
        number(found.mean_lag_versions.value),
    ]


def _relative(value: float | None, old: float | None) -> str:
    return f"{(value / old - 1) * 100:+.1f} %" if value is not None and old else "-"


def _outside(answer: Answer) -> Section:
    predictions = [answer.prediction]
    if answer.effect is not None:
        predictions = [answer.effect.after]
    if answer.sweep is not None:
        predictions += [p.prediction for p in answer.sweep.points if p.prediction is not None]
    seen = {leap.reason: leap for prediction in predictions for leap in prediction.outside}
    rows = [(leap.about, leap.reason, f"±{leap.allowance:.0%}") for leap in seen.values()]
    rows += [("calibration", note, "") for note in answer.calibration.notes]
    return Section(
        "What it leans on beyond what was measured", ("about", "assumed", "allowance"), tuple(rows)
    )
