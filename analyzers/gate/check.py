"""The check of a run against its history, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase

from rlinsight.analyzers.gate.attribution import attribution
from rlinsight.analyzers.gate.identity import identity_key
from rlinsight.analyzers.gate.judging import Sheet, corrected, judge
from rlinsight.analyzers.gate.metrics import metrics
from rlinsight.analyzers.gate.names import unknown_metrics
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.result import Acceptance, CheckResult, MetricVerdict
from rlinsight.analyzers.gate.settings import LOGGED, Acknowledged, MetricSettings, Settings
from rlinsight.analyzers.gate.workload import workload


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
    sheets = [Sheet(run, metrics(run, wanted)) for run in (new, *runs)]
    rows = [judge(name, sheets, work, settings) for name in _names(sheets, settings)]
    verdicts = corrected(rows, settings)
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
        doubts=(
            *new.doubts,
            *_itself(new, history),
            *_in_part(new),
            *unknown_metrics(new, runs, settings),
        ),
        alpha=settings.alpha,
        correction=settings.correction,
    )


def _itself(new: Observation, history: Mapping[str, Observation]) -> list[str]:
    same = [n for n, run in history.items() if run.run_id is not None and run.run_id == new.run_id]
    return [f"the run is compared with itself: `{name}` is in its history" for name in same]


def _in_part(new: Observation) -> list[str]:
    """Say where windows were left out of the throughput: the others may be another kind."""
    tokens = new.windows.get("tokens", ())
    known = sum(value is not None for value in tokens)
    if known in (0, len(tokens)):
        return []
    return [f"trained tokens are known in {known} of {len(tokens)} steady windows only"]


def _names(sheets: Sequence[Sheet], settings: Settings) -> list[str]:
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


def _acknowledged(row: MetricVerdict, settings: Settings, today: date) -> MetricVerdict:
    """Note who accepted a failure: what still holds, before what has expired."""
    if row.verdict != "FAIL":
        return row
    covering = [
        Acceptance(known.reason, known.until, today > known.until)
        for known in settings.acknowledged
        if fnmatchcase(row.name, known.metric) and _covers(known, row)
    ]
    found = next((one for one in covering if not one.expired), covering[0] if covering else None)
    return row if found is None else replace(row, acknowledged=found)


def _covers(known: Acknowledged, row: MetricVerdict) -> bool:
    if known.up_to is None:
        return True
    return row.relative is not None and abs(row.relative) <= known.up_to
