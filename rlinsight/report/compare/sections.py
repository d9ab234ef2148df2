"""The tables of a comparison, as sections that every renderer draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rlinsight.report.check.words import attribution_lines
from rlinsight.report.compare.words import change, gain, is_shown, measured, pair, verdict
from rlinsight.report.section import Section
from rlinsight.report.units import amount, count

if TYPE_CHECKING:
    from rlinsight.analyzers.compare.curves import Curve
    from rlinsight.analyzers.compare.result import ComparedRun, Comparison, MetricRow
    from rlinsight.analyzers.compare.series import Response

#: A step period that changed by less is not explained.
_WORTH_EXPLAINING: Final = 0.05
_LONGEST: Final = 60


def sections(found: Comparison) -> list[Section]:
    """Return the tables in the order of reading."""
    parts = [_runs(found), _metrics(found)]
    if found.series is not None:
        parts += [_response(one, found.series.variable.key) for one in found.series.responses]
    parts += [_facts(found), _learning(found), _time(found), _configuration(found)]
    return [part for part in parts if part.rows]


def _runs(found: Comparison) -> Section:
    rows = tuple(_run(run, found.reference) for run in found.runs)
    return Section("Runs", ("run", "mode", "devices", "steady windows", "steps"), rows)


def _run(run: ComparedRun, reference: str) -> tuple[str, ...]:
    name = f"{run.name} (reference)" if run.name == reference else run.name
    devices = " + ".join(f"{number} {pool}" for pool, number in run.devices.items())
    steps = "-" if run.steps is None else "{} to {}".format(*run.steps)
    return name, run.mode or "-", devices or "-", count(run.windows), steps


def _metrics(found: Comparison) -> Section:
    rows = tuple(
        row for metric in found.metrics if is_shown(metric) for row in _metric(found, metric)
    )
    note = (
        "Change against the reference at equal response length, with its 95 % interval; `real` "
        "says whether it is more than noise and large enough to matter."
    )
    return Section("Figures", ("figure", "run", "value", "change", "real", "why"), rows, note)


def _metric(found: Comparison, metric: MetricRow) -> Iterator[tuple[str, ...]]:
    for run, cell in zip(found.runs, metric.cells, strict=True):
        name = metric.name if run is found.runs[0] else ""
        if cell is None:
            yield name, run.name, "-", "", "not recorded", ""
        elif run.name == found.reference:
            yield name, run.name, measured(cell), "", "reference", ""
        else:
            why = cell.reason if cell.change is None else ""
            yield name, run.name, measured(cell), change(cell), verdict(cell), why


def _response(response: Response, variable: str) -> Section:
    first = response.points[0].setting
    gains = {one.after: one for one in response.gains if one.before == first}
    rows = tuple(
        (
            f"{point.setting:g}",
            ", ".join(point.runs),
            amount(point.value, response.unit),
            pair(gains[point.setting], response) if point.setting in gains else "",
            "" if point.setting not in gains else "yes" if gains[point.setting].real else "no",
            _mark(response, point.setting),
        )
        for point in response.points
    )
    note = (
        f"Gain over {first:g} at equal response length; one that matters is at least "
        f"{gain(response.least, response).lstrip('+')}."
    )
    columns = (variable, "runs", "value", "gain", "real", "")
    return Section(f"{response.metric} over {variable}", columns, rows, note)


def _mark(response: Response, setting: float) -> str:
    flat = response.plateau
    marks = ["knee"] if setting == response.knee else []
    if flat is not None and setting == flat.start:
        marks.append("plateau begins")
    if flat is not None and setting == flat.falls_at:
        marks.append("worse from here")
    return ", ".join(marks)


def _facts(found: Comparison) -> Section:
    rows = tuple(
        (fact.name, *(amount(value, fact.unit) for value in fact.values)) for fact in found.facts
    )
    note = "Over each run's own steady window, without a test of their differences."
    return Section("Beside them", ("figure", *_names(found)), rows, note)


def _learning(found: Comparison) -> Section:
    names = dict.fromkeys(
        curve.figure for run in found.runs for curve in run.curves if curve.axis == "training step"
    )
    rows = tuple((name, *(_course(run, name) for run in found.runs)) for name in names)
    return Section(
        "Learning", ("figure", *_names(found)), rows, "First to last, and the best (at its step)."
    )


def _course(run: ComparedRun, name: str) -> str:
    curve = next((one for one in run.curves if one.figure == name), None)
    known = [] if curve is None else _known(curve)
    if not known:
        return "-"
    best = max(known, key=lambda point: point[1])
    return f"{known[0][1]:.3g} to {known[-1][1]:.3g}, best {best[1]:.3g} ({best[0]:g})"


def _known(curve: Curve) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y is not None]


def _time(found: Comparison) -> Section:
    """Where the time went that a step takes longer than in the reference."""
    rows = []
    for run in found.runs:
        cause = run.attribution
        if cause is not None and cause.period_ratio > 1 + _WORTH_EXPLAINING:
            rows += [(run.name, line) for line in attribution_lines(cause)]
    return Section("Where a step takes longer", ("run", "what"), tuple(rows))


def _configuration(found: Comparison) -> Section:
    rows = tuple(
        (key, *(_shortened(value) for value in values)) for key, values in found.differing.items()
    )
    return Section(
        "Set differently", ("key", *_names(found)), rows,
        "Without what says where things lie or how long a run is.",
    )  # fmt: skip


def _shortened(value: str | None) -> str:
    if value is None:
        return "(absent)"
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"


def _names(found: Comparison) -> list[str]:
    return [run.name for run in found.runs]
