"""The words and numbers of a tuning that all renderers share."""

from __future__ import annotations

from typing import Final

from rlinsight.report.section import Section
from rlinsight.report.units import number, percent, relative, seconds
from rlinsight.runs.tune.log import Candidate, Judged, Log, Measured, Record

UNITS = {"per-device": "tokens/s/device", "wall-clock": "samples/s"}


def headline(log: Log) -> list[str]:
    """Return the tuning in sentences: what was gained, with which changes, why it ended."""
    baseline = next(iter(log.of_kind("baseline")), None)
    kept = log.kept
    lines = [_gained(log, baseline, kept)]
    changes = [one.candidate.change for one in path_to(log, kept) if one.candidate is not None]
    if changes:
        lines.append(f"Changes kept, in this order: {'; '.join(changes)}.")
    if log.stopped is not None:
        lines.append(f"Stopped: {log.stopped}.")
    elif log.open is not None:
        lines.append(f"Run {log.open.number} ({log.open.kind}) is under way.")
    return lines


def path_to(log: Log, record: Record | None) -> list[Record]:
    """Return the kept runs from the baseline to `record`."""
    found: list[Record] = []
    while record is not None:
        found.append(record)
        record = log.record(record.beside)
    return found[::-1]


def _gained(log: Log, baseline: Record | None, kept: Record | None) -> str:
    if baseline is None or baseline.measured is None or baseline.measured.value is None:
        return f"{log.name}: no baseline yet."
    before = baseline.measured.value
    unit = UNITS[log.objective]
    if kept is None or kept.measured is None or kept.measured.value is None or kept is baseline:
        return f"{log.name}: {number(before, unit)}, nothing gained over the baseline."
    after = kept.measured.value
    return (
        f"{log.name}: {number(before, unit)} became {number(after, unit)} "
        f"({after / before * 100 - 100:+.1f} %)."
    )


def predicted(candidate: Candidate | None) -> str:
    """Return what the simulator expected of an experiment."""
    if candidate is None or candidate.predicted is None:
        return "-" if candidate is None else "not predicted"
    value, low, high = candidate.predicted
    return relative(value, low, high)


def found(judged: Judged | None) -> str:
    """Return what was measured beside the kept run."""
    if judged is None or judged.change is None:
        return "-"
    return relative(judged.change, judged.low, judged.high)


def value(log: Log, measured: Measured | None) -> str:
    """Return the objective of a run with its interval."""
    if measured is None or measured.value is None:
        return "-"
    text = number(measured.value, UNITS[log.objective])
    if measured.low is None or measured.high is None:
        return text
    return f"{text} [{number(measured.low)}, {number(measured.high)}]"


def runs(log: Log) -> Section:
    """Return the table of runs."""
    rows = tuple(
        (
            str(one.number),
            one.kind if one.candidate is None else one.candidate.rule,
            "" if one.candidate is None else one.candidate.change,
            "" if one.beside is None else str(one.beside),
            value(log, one.measured),
            predicted(one.candidate),
            found(one.judged),
            one.decision or "under way",
        )
        for one in log.records
    )
    columns = ("run", "what", "change", "beside", UNITS[log.objective], "predicted", "measured",
               "decision")  # fmt: skip
    return Section("Runs", columns, rows, "Changes are of the objective beside the kept run.")


def evidence(one: Record) -> list[tuple[str, str]]:
    """Return the evidence of a run's decision as named lines."""
    lines: list[tuple[str, str]] = []
    if one.candidate is not None:
        lines += [("evidence", text) for text in one.candidate.evidence]
        lines += [("change", one.candidate.change), ("predicted", predicted(one.candidate))]
    if one.judged is not None:
        lines.append(("measured", f"{found(one.judged)}: {one.judged.reason}"))
        if one.judged.detectable is not None:
            least = f"{one.judged.detectable * 100:.1f} %"
            lines.append(("detectable", f"a change of {least} would have been caught in 4 of 5"))
        lines += [("also", text) for text in one.judged.differences]
        lines += [("quality lost", text) for text in one.judged.losses]
    if one.measured is not None and one.measured.figures:
        lines.append(("figures", _figures(one.measured)))
        lines.append(("then", one.measured.answer))
    if one.candidate is not None:
        lines += [("risk", one.candidate.risk), ("wrong if", one.candidate.falsifier)]
    if one.ended_s is not None:
        lines.append(("took", seconds(one.ended_s - one.began_s)))
    return [*lines, ("trace", one.trace)]


#: Of the figures beside the objective; what idles is a share, rewards and kl have no unit.
_FIGURE_UNITS: Final = {"mean lag": "versions"}


def _figures(measured: Measured) -> str:
    return ", ".join(
        f"{name} {percent(v) if name.endswith(' idle') else number(v, _FIGURE_UNITS.get(name, ''))}"
        for name, v in measured.figures.items()
        if v is not None
    )
