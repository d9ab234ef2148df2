"""The words and numbers of a comparison that all renderers share, the app's among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.units import amount, counted, number

if TYPE_CHECKING:
    from rlinsight.analyzers.compare.plateau import Gain
    from rlinsight.analyzers.compare.result import ComparedRun, Comparison, MetricRow
    from rlinsight.analyzers.compare.series import Response
    from rlinsight.analyzers.gate.result import MetricVerdict

#: Metrics that the first sentence is about, in this order of preference.
_MERIT = ("tokens_per_s_per_device", "samples_per_s", "step_time_s")
#: A longer list of changed figures is cut.
_LISTED = 4
#: A bubble that takes less of every run's device time is left to the JSON form.
_BUBBLE = 0.01


def measured(cell: MetricVerdict) -> str:
    """Return a run's own value with its 95 % interval."""
    text = amount(cell.value, cell.unit)
    if cell.value is None or cell.own_low is None or cell.own_high is None:
        return text
    return f"{text} {_interval(text, (cell.own_low, cell.own_high), cell.unit)}"


def _interval(text: str, bounds: tuple[float, float], unit: str) -> str:
    """Return bounds in brackets, without units where all have the value's own."""
    said = [amount(bound, unit) for bound in bounds]
    if len({one.rsplit(" ", 1)[-1] for one in (text, *said) if " " in one}) == 1:
        said = [one.rsplit(" ", 1)[0] for one in said]
    return f"[{', '.join(said)}]"


def change(cell: MetricVerdict) -> str:
    """Return the change against the reference with its 95 % interval, empty where there is none."""
    if cell.change is None or cell.low is None or cell.high is None:
        return ""
    shift = cell.unit == "share" or cell.reference is None or cell.reference <= 0
    scale = 100.0 if cell.unit == "share" else 1.0
    if not shift:
        assert cell.reference is not None
        scale = 100.0 / cell.reference
    unit = " points" if cell.unit == "share" else "" if shift else " %"
    low, middle, high = (f"{value * scale:+.3g}" if shift and not unit else f"{value * scale:+.1f}"
                         for value in (cell.low, cell.change, cell.high))  # fmt: skip
    return f"{middle}{unit} ({low} to {high})"


def verdict(cell: MetricVerdict) -> str:
    """Return whether a difference is real, in a word."""
    if cell.direction in ("better", "worse"):
        return "differs" if cell.better == "either" else str(cell.direction)
    if cell.direction is None:
        return "not compared"
    assert cell.change is not None
    assert cell.corridor is not None
    return "may be noise" if abs(cell.change) > cell.corridor else "no difference"


def is_real(cell: MetricVerdict) -> bool:
    """Whether a difference is outside the corridor and more than noise."""
    return cell.direction in ("better", "worse")


def is_shown(row: MetricRow) -> bool:
    """A single bubble is shown where it is a cost to some run, or really differs."""
    known = [cell for cell in row.cells if cell is not None and cell.value is not None]
    if not row.name.startswith("bubble."):
        return bool(known)
    return any((cell.value or 0.0) >= _BUBBLE or is_real(cell) for cell in known)


def headline(found: Comparison) -> list[str]:
    """Return the comparison in sentences: how each run does, the curve, and what to beware of."""
    lines = [_sentence(found, i) for i, run in enumerate(found.runs) if run.name != found.reference]
    if found.series is not None:
        lines += [curve_sentence(one, found.series.variable.name) for one in found.series.responses]
    return lines


def _sentence(found: Comparison, i: int) -> str:
    name = found.runs[i].name
    rows = [row for row in found.metrics if row.name in _MERIT]
    cell = next((c for row in rows if (c := row.cells[i]) is not None and change(c)), None)
    if cell is None:
        return f"{name}: nothing could be compared with {found.reference}."
    first = f"{name}: {cell.name} {change(cell)} against {found.reference}: {verdict(cell)}"
    others = [
        f"{other.name} {verdict(other)}"
        for row in found.metrics
        if (other := row.cells[i]) is not None and is_real(other) and _is_told(other, cell)
    ]
    more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    also = f"; also {', '.join(others[:_LISTED])}{more}" if others else ""
    return f"{first}{also}."


def _is_told(other: MetricVerdict, merit: MetricVerdict) -> bool:
    small = other.name.startswith("bubble.") or other.name == "recording_overhead"
    return other.name != merit.name and not small


def gain(value: float, response: Response) -> str:
    """Return a gain in percent of a rate, or in points of a share."""
    return f"{value * 100:+.1f} {'points' if response.unit == 'share' else '%'}"


def curve_sentence(response: Response, variable: str) -> str:
    """Return where a curve stops to improve, and how sure that is."""
    start = f"{response.metric} over {variable}"
    last = response.points[-1].setting
    flat = response.plateau
    if flat is None:
        return f"{start}: still improves at {last:g}, the last setting; go on from there."
    first = flat.start == response.points[0].setting
    what = "nothing above it is really better" if first else "no later setting is really better"
    text = f"{start}: plateau from {flat.start:g}, {what}"
    if response.knee is not None:
        text += f"; most of the gain is had at {response.knee:g}"
    if flat.falls_at is not None:
        text += f"; worse again from {flat.falls_at:g}"
    if not flat.shown:
        hidden = gain(flat.hidden, response)
        text += f"; not certain: up to {hidden} beyond it may be hidden in the noise"
    return f"{text}."


def pair(one: Gain, response: Response) -> str:
    """Return the gain of one pair of settings with its interval."""
    low, high = gain(one.low, response).rsplit(" ", 1)[0], gain(one.high, response)
    return f"{gain(one.gain, response)} ({low} to {high})"


def notes(found: Comparison) -> list[str]:
    """Return what a reader must know beside the tables, one line each."""
    lines = [_extent(found)]
    lines += [
        f"not matched on {condition}: the runs were set to differ in it ({key})"
        for condition, key in found.unmatched.items()
    ]
    lines += [line for run in found.runs for line in _of_run(run)]
    if found.why_no_series is not None:
        lines.append(f"no response curve: {found.why_no_series}")
    if found.series is not None and found.series.variable.along:
        lines.append(f"vary along with it: {', '.join(found.series.variable.along)}")
    lines += [f"left out: {name}: {reason}" for name, reason in found.excluded.items()]
    lines.append(_method(found))
    return lines


def _extent(found: Comparison) -> str:
    if found.common is None:
        return f"compared over each run's own steady window: {found.why_not_common}"
    part = found.common
    return f"compared over {part.unit} {part.first} to {part.last}, which all runs have"


def _of_run(run: ComparedRun) -> list[str]:
    lines = [f"doubt: {run.name}: {doubt}" for doubt in run.doubts]
    work = run.workload
    if work is not None and (work.drifted or not work.matchable):
        how = "compared at equal length" if work.matchable else "too far to compare at equal length"
        lines.append(
            f"{run.name}: responses of {number(work.mean_tokens)} tokens, the reference "
            f"{number(work.reference_tokens)}: drift, {how}"
        )
    return lines


def _method(found: Comparison) -> str:
    names = {"bh": "Benjamini-Hochberg", "holm": "Holm", "none": "not corrected"}
    judged = sum(cell is not None and bool(change(cell)) for row in found.metrics
                 for cell in row.cells)  # fmt: skip
    return (
        f"real: outside the corridor and p < {found.alpha:g} over {counted(judged, 'comparison')} "
        f"({names[found.correction]}); intervals are 95 %"
    )
