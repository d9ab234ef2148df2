"""The comparison of runs, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from rlinsight.analyzers.compare.configs import (
    Differences,
    Variable,
    differences,
    unknown_variable,
    variable,
)
from rlinsight.analyzers.compare.entrant import Entrant
from rlinsight.analyzers.compare.facts import facts
from rlinsight.analyzers.compare.progress import Common, common, window_of
from rlinsight.analyzers.compare.result import ComparedRun, Comparison, MetricRow
from rlinsight.analyzers.compare.series import Series, series
from rlinsight.analyzers.gate.attribution import attribution
from rlinsight.analyzers.gate.identity import matches
from rlinsight.analyzers.gate.judging import Compared, Sheet, corrected, judge
from rlinsight.analyzers.gate.metrics import Metric, metrics, waits
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.result import MetricVerdict, Workload
from rlinsight.analyzers.gate.settings import CONDITIONS, LOGGED, MetricSettings, Settings
from rlinsight.analyzers.gate.workload import workload
from rlinsight.errors import RlinsightError

#: What the framework logs about learning, and which way is good.
QUALITY: Final[Mapping[str, MetricSettings]] = {
    f"{LOGGED}critic/rewards/mean": MetricSettings(0.1, 0.02, "higher"),
    f"{LOGGED}rollout_corr/kl": MetricSettings(0.5, 1e-3, "lower"),
    f"{LOGGED}actor/entropy": MetricSettings(0.1, 0.0, "either"),
}
#: How sure a difference has to be: one experiment in twenty may mislead, a build may not so often.
SETTINGS: Final = Settings(alpha=0.05, metrics=QUALITY)

#: Keys (patterns) that change by themselves how often windows hold something, or lengths.
_MAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "validations": (
        "trainer.test_freq", "*val_*", "*use_trainer_do_validate", "*parameter_sync_step",
        "*require_batches", "mode",
    ),
    "checkpoints": ("trainer.save_freq", "*parameter_sync_step", "*require_batches", "mode"),
    "length": (
        "data.max_response_length", "data.max_prompt_length", "actor_rollout_ref.model.path",
        "data.*files",
    ),
}  # fmt: skip


def compare(
    entrants: Sequence[Entrant],
    *,
    reference: str | None = None,
    knob: str | None = None,
    excluded: Mapping[str, str] | None = None,
    settings: Settings = SETTINGS,
) -> Comparison:
    """Return two runs or more side by side; `reference` is the name of one, else the first is.

    `knob` is the key of the variable, where more than one differs. Raises RlinsightError for
    fewer than two runs, a reference that is none of them, or a knob that no run has.
    """
    if len(entrants) < 2:
        raise RlinsightError(f"expected two runs or more to compare, found {len(entrants)}")
    place = _place(entrants, reference)
    identities = [one.whole.identity for one in entrants]
    if knob is not None and (problem := unknown_variable(knob, identities)) is not None:
        raise RlinsightError(problem)
    found = differences(identities)
    unmatched = _unmatched(found)
    chosen = replace(settings, match_on=tuple(c for c in CONDITIONS if c not in unmatched))
    part, why, runs = _matched(entrants, chosen)
    works = [None if run is runs[place] else workload(run, [runs[place]], chosen) for run in runs]
    varied = variable(found, knob) if found else "the runs were set alike"
    rising = _series(varied, entrants, runs, chosen)
    return Comparison(
        runs=tuple(
            _run(one, run, runs[place], work)
            for one, run, work in zip(entrants, runs, works, strict=True)
        ),
        reference=entrants[place].name,
        excluded=dict(excluded or {}),
        common=part,
        why_not_common=why,
        differing=found,
        unmatched=unmatched,
        metrics=_metrics(runs, place, works, chosen),
        facts=facts([one.report for one in entrants]),
        series=rising,
        why_no_series=varied if isinstance(varied, str) else _no_curve(rising),
        alpha=settings.alpha,
        correction=settings.correction,
    )


def _place(entrants: Sequence[Entrant], reference: str | None) -> int:
    names = [one.name for one in entrants]
    if reference is None:
        return 0
    if reference not in names:
        known = ", ".join(f"`{name}`" for name in names)
        raise RlinsightError(f"expected a reference among {known}, found `{reference}`")
    return names.index(reference)


def _unmatched(found: Differences) -> dict[str, str]:
    """Return the conditions that the runs were set to differ in, with the key that does it."""
    made = {}
    for condition, patterns in _MAKES.items():
        key = next((key for key in found if matches(key, patterns)), None)
        if key is not None:
            made[condition] = key
    return made


def _matched(
    entrants: Sequence[Entrant], settings: Settings
) -> tuple[Common | None, str | None, list[Observation]]:
    """Return the part that all have in common, or why there is none, and the runs over it."""
    whole = [one.whole for one in entrants]
    part = common([one.marks for one in entrants])
    if isinstance(part, str):
        return None, part, whole
    runs = [one.over(window_of(one.marks, part)) for one in entrants]
    few = next((e.name for e, run in zip(entrants, runs, strict=True)
                if run.count < min(settings.min_windows, e.whole.count)), None)  # fmt: skip
    if few is not None:
        why = (
            f"{part.unit} {part.first} to {part.last} are common to all, and `{few}` has fewer "
            f"than {settings.min_windows} windows in them"
        )
        return None, why, whole
    return part, None, runs


def _run(
    one: Entrant, run: Observation, reference: Observation, work: Workload | None
) -> ComparedRun:
    numbers = [mark.number for mark in one.marks]
    return ComparedRun(
        name=one.name,
        run_id=run.run_id,
        mode=one.trace.manifest.mode,
        devices=dict(run.devices),
        windows=run.count,
        cut=run.cut,
        steps=(min(numbers), max(numbers)) if numbers else None,
        doubts=one.doubts,
        workload=work,
        attribution=None if run is reference else attribution(run, [reference]),
        curves=one.curves,
    )


def _metrics(
    runs: Sequence[Observation],
    place: int,
    works: Sequence[Workload | None],
    settings: Settings,
) -> tuple[MetricRow, ...]:
    sheets = [_sheet(run) for run in runs]
    names = sorted(dict.fromkeys(name for sheet in sheets for name in sheet.metrics), key=_place_of)
    asked: list[tuple[str, int]] = []
    compared: list[Compared] = []
    for name in names:
        for i, sheet in enumerate(sheets):
            others = [] if i == place else [sheets[place]]
            if any(one.get(name) is not None for one in (sheet, *others)):
                asked.append((name, i))
                compared.append(judge(name, [sheet, *others], works[i], settings))
    judged = dict(zip(asked, corrected(compared, settings), strict=True))
    return tuple(_row(name, [judged.get((name, i)) for i in range(len(runs))]) for name in names)


def _place_of(name: str) -> tuple[bool, bool, bool]:
    """What a run is for comes first, single bubbles last; sorting keeps the rest in order."""
    return name.startswith("bubble."), name.startswith(LOGGED), name == "recording_overhead"


def _sheet(run: Observation) -> Sheet:
    keys = run.logged.keys() | run.not_finite.keys()
    wanted = [name for name in QUALITY if name.removeprefix(LOGGED) in keys]
    found: dict[str, Metric] = metrics(run, wanted)
    waiting = waits(run)
    return Sheet(run, found if waiting is None else {**found, waiting.name: waiting})


def _row(name: str, cells: Sequence[MetricVerdict | None]) -> MetricRow:
    first = next(cell for cell in cells if cell is not None)
    return MetricRow(name, first.unit, first.better, tuple(cells))


def _series(
    varied: Variable | str,
    entrants: Sequence[Entrant],
    runs: Sequence[Observation],
    settings: Settings,
) -> Series | None:
    if not isinstance(varied, Variable):
        return None
    found = series(varied, [one.name for one in entrants], runs, settings)
    return found if found.responses else None


def _no_curve(found: Series | None) -> str | None:
    return None if found is not None else "no metric is known in enough windows of every run"
