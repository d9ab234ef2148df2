"""The verdict on single metrics: what can be compared, and which changes are more than noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rlinsight.analyzers.gate.comparison import Comparison, compare, own_margin
from rlinsight.analyzers.gate.metrics import Metric, Series, absent_bubble
from rlinsight.analyzers.gate.multiplicity import adjusted
from rlinsight.analyzers.gate.observation import Better, Observation
from rlinsight.analyzers.gate.result import Direction, MetricVerdict, Workload
from rlinsight.analyzers.gate.settings import LOGGED, Settings

Compared = tuple[MetricVerdict, Comparison | None]


@dataclass(frozen=True)
class Sheet:
    """A run and its metrics."""

    run: Observation
    metrics: Mapping[str, Metric]

    def get(self, name: str) -> Metric | None:
        """Return a metric; a bubble that the run does not have took no time."""
        return self.metrics.get(name) or absent_bubble(self.run, name)


def judge(
    name: str, sheets: Sequence[Sheet], work: Workload | None, settings: Settings
) -> Compared:
    """Return a metric of the first run beside the others, its p-value not yet corrected."""
    mine, *theirs = (sheet.get(name) for sheet in sheets)
    known = next(metric for metric in (mine, *theirs) if metric is not None)
    chosen = settings.of(name, known.defaults)
    row = MetricVerdict(
        name, known.unit, "ERROR", bool(chosen.gates), chosen.better or "either", ""
    )
    if mine is None or mine.series is None:
        return _missing(row, mine, theirs), None
    row = _measured(row, mine.series)
    if not _enough(mine.series, settings):
        return replace(row, reason=_too_few(len(mine.series.per), settings)), None
    have = [m for m in theirs if m and m.series]
    past = [
        m.series for m in have if m.unit == mine.unit and m.series and _enough(m.series, settings)
    ]
    if have and all(m.unit != mine.unit for m in have):
        return replace(row, reason=_other_unit(mine, have)), None
    if not past:
        reason = _inactive(len(sheets) - 1, settings)
        return replace(row, verdict="INACTIVE", reason=reason), None
    by_length = chosen.match_length and "length" in settings.match_on
    if by_length and work is not None and not work.matchable:
        return replace(row, verdict="INACTIVE", reason=_drift(work)), None
    return row, compare(mine.series, past, chosen, settings)


def _measured(row: MetricVerdict, series: Series) -> MetricVerdict:
    value, margin = series.value, own_margin(series)
    if margin is None:
        return replace(row, value=value)
    return replace(row, value=value, own_low=value - margin, own_high=value + margin)


def _missing(
    row: MetricVerdict, mine: Metric | None, theirs: Sequence[Metric | None]
) -> MetricVerdict:
    """What the history has, or what was asked for by name, and the run lacks is an error.

    What nobody has (an imported trace has no samples, say) was not compared.
    """
    why = (
        "it was measured in what it is compared with, not in this run"
        if mine is None
        else str(mine.why)
    )
    known = any(metric is not None and metric.series is not None for metric in theirs)
    if known or row.name.startswith(LOGGED):
        return replace(row, reason=why)
    return replace(row, verdict="INACTIVE", reason=f"{why}, and nothing to compare with has it")


def _enough(series: Series, settings: Settings) -> bool:
    return series.single or len(series.per) >= settings.min_windows


def _other_unit(mine: Metric, theirs: Sequence[Metric]) -> str:
    units = ", ".join(dict.fromkeys(f"`{metric.unit}`" for metric in theirs))
    return f"it is measured in `{mine.unit}`, and what it is compared with in {units}"


def _too_few(count: int, settings: Settings) -> str:
    return (
        f"expected at least {settings.min_windows} steady windows to judge it by, found {count}; "
        "make the run longer"
    )


def _inactive(runs: int, settings: Settings) -> str:
    if not runs:
        return "no trusted run to compare with"
    return f"nothing to compare with has it in at least {settings.min_windows} steady windows"


def _drift(work: Workload) -> str:
    return (
        f"the workload drifted: responses of {work.mean_tokens:.0f} tokens are not among those it "
        f"is compared with ({work.reference_tokens:.0f} on average), so there is no comparing at "
        "equal length"
    )


def corrected(rows: Sequence[Compared], settings: Settings) -> list[MetricVerdict]:
    """Fill in verdicts; metrics that gate and those that are watched are two families."""
    found = [row for row, _ in rows]
    for gates in (True, False):
        family = [
            (i, row, c) for i, (row, c) in enumerate(rows) if c is not None and row.gates is gates
        ]
        p_values = adjusted([c.p_value for _, _, c in family], settings.correction)
        level = settings.alpha / (1 if settings.correction == "none" else max(1, len(family)))
        for (i, row, c), p_value in zip(family, p_values, strict=True):
            found[i] = (
                _verdict(row, c, c.p_value, settings.alpha, settings)
                if row.name in settings.alone
                else _verdict(row, c, p_value, level, settings)
            )
    return found


def _verdict(
    row: MetricVerdict, c: Comparison, p_adjusted: float, level: float, settings: Settings
) -> MetricVerdict:
    moved = c.outside and p_adjusted < settings.alpha
    direction: Direction = _direction(c.change, row.better) if moved else "within"
    return replace(
        row,
        verdict="FAIL" if direction == "worse" else "PASS",
        reason=_why(c, moved=moved),
        reference=c.reference,
        raw_reference=c.raw_reference,
        explained=c.explained,
        matched=c.matched,
        corridor=c.corridor,
        change=c.change,
        low=c.low,
        high=c.high,
        relative=c.relative,
        direction=direction,
        p_value=c.p_value,
        p_adjusted=p_adjusted,
        detectable=c.detectable(level),
        runs=c.runs,
        run_spread=c.run_spread,
    )


def _direction(change: float, better: Better) -> Direction:
    if better == "either":
        return "worse"
    return "better" if (change > 0) == (better == "higher") else "worse"


def _why(c: Comparison, *, moved: bool) -> str:
    if moved:
        return "outside the corridor, and more than noise"
    if c.outside:
        return "outside the corridor, but noise alone explains it"
    return "within the corridor"
