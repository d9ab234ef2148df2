"""The part of the training that all runs have in their steady windows.

Problem: a run that went on for longer trains on longer responses; comparing its mean with that of
a shorter run compares two stages of training. Method: every run is cut to the training steps that
are in the steady window of all. Where runs train different numbers of samples per step, a step is
not the same progress, and trained samples are counted instead.

Worked example: steady steps 3 to 30 and 5 to 12 have 5 to 12 in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rlinsight.analyzers.result import Report

Unit = Literal["steps", "samples"]

#: Runs whose samples per step differ by more count their progress in samples.
_SAME: Final = 0.01


@dataclass(frozen=True)
class Mark:
    """One training step: when it ran, and which part of the training it is."""

    start_ns: int
    end_ns: int
    number: int
    samples: int | None


@dataclass(frozen=True)
class Common:
    """What the runs have in common: from `first` to `last`, in `unit`."""

    first: int
    last: int
    unit: Unit


def marks(report: Report) -> tuple[Mark, ...]:
    """Return the numbered steps of the steady window, with the samples trained by their end."""
    trained, found = trained_by(report), []
    for row in report.steps:
        inside = report.window.start_ns <= row.start_ns < report.window.end_ns
        if inside and row.step is not None:
            end_ns = row.start_ns + round(row.duration_s * 1e9)
            found.append(Mark(row.start_ns, end_ns, row.step, trained.get(row.step)))
    return tuple(found)


def trained_by(report: Report) -> dict[int, int]:
    """Return the samples trained by the end of each numbered step of the recording.

    Empty where those of a step are not known: all that follow would be too few.
    """
    done, found = 0, {}
    for row in report.steps:
        if row.samples is None:
            return {}
        done += row.samples
        if row.step is not None:
            found[row.step] = done
    return found


def common(runs: Sequence[Sequence[Mark]]) -> Common | str:
    """Return what is in all runs, or in a sentence why nothing is."""
    if not all(runs):
        return "not every run has numbered steps in its steady window"
    unit: Unit = "steps" if equal_steps(runs) else "samples"
    places = [_places(run, unit) for run in runs]
    if not all(places):
        return "runs train different numbers of samples per step, and not every run recorded them"
    first, last = max(min(one) for one in places), min(max(one) for one in places)
    inside = (any(first <= at <= last for at in one) for one in places)
    if not all(inside):
        return f"the steady windows have no {unit} in common"
    return Common(first, last, unit)


def window_of(run: Sequence[Mark], part: Common) -> tuple[int, int] | None:
    """Return the window (ns) in which a run was in `part`; None where that is all of it."""
    places = _places(run, part.unit)
    inside = [mark for mark, at in zip(run, places, strict=True) if part.first <= at <= part.last]
    if len(inside) == len(run) or not inside:
        return None
    return inside[0].start_ns, inside[-1].end_ns


def _places(run: Sequence[Mark], unit: Unit) -> list[int]:
    if unit == "steps":
        return [mark.number for mark in run]
    return [mark.samples for mark in run if mark.samples is not None]


def equal_steps(runs: Sequence[Sequence[Mark]]) -> bool:
    """Whether a step trains about as many samples in every run; so it is where nobody knows."""
    sizes = []
    for run in filter(None, runs):
        first, last = run[0], run[-1]
        if first.samples is not None and last.samples is not None and last.number > first.number:
            sizes.append((last.samples - first.samples) / (last.number - first.number))
    return not sizes or max(sizes) <= (1 + _SAME) * min(sizes)
