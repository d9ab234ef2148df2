"""The check of a run against its history, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase

from rlinsight.analyzers.gate.attribution import attribution
from rlinsight.analyzers.gate.comparison import Comparison, compare
from rlinsight.analyzers.gate.identity import identity_key
from rlinsight.analyzers.gate.metrics import Metric, Series, absent_bubble, metrics
from rlinsight.analyzers.gate.multiplicity import adjusted
from rlinsight.analyzers.gate.observation import Better, Observation
from rlinsight.analyzers.gate.result import (
    Acceptance,
    CheckResult,
    Direction,
    MetricVerdict,
    Workload,
)
from rlinsight.analyzers.gate.settings import LOGGED, MetricSettings, Settings
from rlinsight.analyzers.gate.workload import workload

Compared = tuple[MetricVerdict, Comparison | None]


def check(
    new: Observation,
    history: Mapping[str, Observation],
    settings: Settings,
    today: date,
    excluded: Mapping[str, str] | None = None,
    ignored: Sequence[str] = (),
) -> CheckResult:
    """Return the verdict on `new` beside the trusted runs `history` (name -> run, latest first).

    `history` holds only runs that may be compared with `new`; `today` decides which
    acknowledged changes have expired.
    """
    runs = list(history.values())
    work = workload(new, runs, settings)
    wanted = _wanted(new, runs, settings)
    sheets = [_Sheet(run, metrics(run, wanted)) for run in (new, *runs)]
    rows = [_judge(name, sheets, work, settings) for name in _names(sheets, settings)]
    verdicts = _corrected(rows, settings)
    return CheckResult(
        run_id=new.run_id,
        identity_key=identity_key(new.identity),
        windows=new.count,
        cut=new.cut,
        history=tuple(history),
        excluded=dict(excluded or {}),
        ignored=tuple(ignored),
        metrics=tuple(_acknowledged(row, settings, today) for row in verdicts),
        workload=work,
        attribution=attribution(new, runs) if runs else None,
        doubts=(*new.doubts, *_itself(new, history), *_unheard_of(verdicts, settings)),
        alpha=settings.alpha,
        correction=settings.correction,
    )


def _itself(new: Observation, history: Mapping[str, Observation]) -> list[str]:
    same = [n for n, run in history.items() if run.run_id is not None and run.run_id == new.run_id]
    return [f"the run is compared with itself: `{name}` is in its history" for name in same]


def _unheard_of(rows: Sequence[MetricVerdict], settings: Settings) -> list[str]:
    """Name the settings of metrics that nobody has: a misspelt one leaves the default in force.

    A bubble may have come and gone, and a pattern need not match.
    """
    known = {row.name for row in rows}
    return [
        f"`{name}` of the configuration is no metric of this run or its history"
        for name, given in settings.metrics.items()
        if not (name in known or given.skip or name.startswith("bubble.") or set(name) & set("*?["))
    ]


@dataclass(frozen=True)
class _Sheet:
    """A run and its metrics."""

    run: Observation
    metrics: Mapping[str, Metric]

    def get(self, name: str) -> Metric | None:
        """Return a metric; a bubble that the run does not have took no time."""
        return self.metrics.get(name) or absent_bubble(self.run, name)


def _names(sheets: Sequence[_Sheet], settings: Settings) -> list[str]:
    """Return the metrics to judge: those of the run and of its history."""
    names = dict.fromkeys(name for sheet in sheets for name in sheet.metrics)
    return [name for name in names if not settings.of(name, MetricSettings()).skip]


def _wanted(new: Observation, history: Sequence[Observation], settings: Settings) -> list[str]:
    logged = dict.fromkeys(LOGGED + key for run in (new, *history) for key in run.logged)
    logged |= dict.fromkeys(LOGGED + key for key in new.not_finite)
    found: dict[str, None] = {}
    for pattern in settings.metrics:
        if pattern.startswith(LOGGED):
            plain = not any(mark in pattern for mark in "*?[")
            found |= dict.fromkeys([pattern] if plain else _matching(logged, pattern))
    return list(found)


def _matching(names: Mapping[str, None], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _judge(
    name: str, sheets: Sequence[_Sheet], work: Workload | None, settings: Settings
) -> Compared:
    mine, *theirs = (sheet.get(name) for sheet in sheets)
    known = next(metric for metric in (mine, *theirs) if metric is not None)
    chosen = settings.of(name, known.defaults)
    row = MetricVerdict(
        name, known.unit, "ERROR", bool(chosen.gates), chosen.better or "either", ""
    )
    if mine is None or mine.series is None:
        return _missing(row, mine, theirs), None
    row = replace(row, value=mine.series.value)
    if not _enough(mine.series, settings):
        return replace(row, reason=_too_few(len(mine.series.per), settings)), None
    past = [m.series for m in theirs if m and m.series and _enough(m.series, settings)]
    if not past:
        reason = _inactive(len(sheets) - 1, settings)
        return replace(row, verdict="INACTIVE", reason=reason), None
    if chosen.match_length and work is not None and not work.matchable:
        return replace(row, verdict="INACTIVE", reason=_drift(work)), None
    return row, compare(mine.series, past, chosen, settings)


def _missing(
    row: MetricVerdict, mine: Metric | None, theirs: Sequence[Metric | None]
) -> MetricVerdict:
    """What the history has, or what was asked for by name, and the run lacks is an error.

    What nobody has (an imported trace has no samples, say) was not compared.
    """
    why = "it was measured in the baseline, not in this run" if mine is None else str(mine.why)
    known = any(metric is not None and metric.series is not None for metric in theirs)
    if known or row.name.startswith(LOGGED):
        return replace(row, reason=why)
    return replace(row, verdict="INACTIVE", reason=f"{why}, and no trusted run has it")


def _enough(series: Series, settings: Settings) -> bool:
    return series.single or len(series.per) >= settings.min_windows


def _too_few(count: int, settings: Settings) -> str:
    return (
        f"expected at least {settings.min_windows} steady windows to judge it by, found {count}; "
        "make the run longer"
    )


def _inactive(runs: int, settings: Settings) -> str:
    if not runs:
        return "no trusted run to compare with"
    return f"no trusted run has it in at least {settings.min_windows} steady windows"


def _drift(work: Workload) -> str:
    return (
        f"the workload drifted: responses of {work.mean_tokens:.0f} tokens are not among those of "
        f"the baseline ({work.reference_tokens:.0f} on average), so there is no comparing at equal "
        "length"
    )


def _corrected(rows: Sequence[Compared], settings: Settings) -> list[MetricVerdict]:
    """Fill in verdicts; metrics that gate and those that are watched are two families."""
    found: dict[str, MetricVerdict] = {row.name: row for row, _ in rows}
    for gates in (True, False):
        family = [(row, c) for row, c in rows if c is not None and row.gates is gates]
        p_values = adjusted([c.p_value for _, c in family], settings.correction)
        level = settings.alpha / (1 if settings.correction == "none" else max(1, len(family)))
        for (row, c), p_value in zip(family, p_values, strict=True):
            found[row.name] = _verdict(row, c, p_value, level, settings)
    return list(found.values())


def _verdict(
    row: MetricVerdict, c: Comparison, p_adjusted: float, level: float, settings: Settings
) -> MetricVerdict:
    moved = c.outside and p_adjusted < settings.alpha
    direction: Direction = _direction(c.change, row.better) if moved else "within"
    return replace(
        row,
        verdict="FAIL" if direction == "worse" else "PASS",
        reason=_why(c, moved=moved),
        own_low=c.own_low,
        own_high=c.own_high,
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


def _acknowledged(row: MetricVerdict, settings: Settings, today: date) -> MetricVerdict:
    if row.verdict != "FAIL":
        return row
    for known in settings.acknowledged:
        small = known.up_to is None or (
            row.relative is not None and abs(row.relative) <= known.up_to
        )
        if fnmatchcase(row.name, known.metric) and small:
            return replace(
                row, acknowledged=Acceptance(known.reason, known.until, today > known.until)
            )
    return row
