"""Bubbles that come back: every n steps (validation, checkpoints), or always equally long.

Method: the bubble seconds that begin between the start of one step and the next make a
series over steps. For each period n and phase p the series is explained by two levels, steps
with step % n == p and the others; the pair that explains most variance wins. It counts when
an F test, corrected for the number of pairs tried, is significant, the pattern explains at
least half of the variance, and it occurred three times. Then it is subtracted and the rest is
searched again, so validation every 5 steps and a checkpoint every 20 are both found.

Worked example: steps of 10 s from 0 s on, numbered 1 to 20, with a bubble of 4 s in steps 5,
10, 15 and 20: period 5, phase 0, 4 occurrences, 4 s each, every 50 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rlinsight.analyzers.significance import f_upper

Series = NDArray[np.float64]

MIN_OCCURRENCES = 3
MIN_EXPLAINED = 0.5
SIGNIFICANCE = 0.01
#: A pattern must stand out from the other steps by this share of their bubble time.
MIN_LIFT = 0.2
#: Periods tried, so that a long run stays cheap; no verl frequency is above it in practice.
MAX_PERIOD = 200
MAX_PATTERNS = 3
#: Gaps whose lengths differ less than this (standard deviation / mean) are a constant.
CONSTANT_CV = 0.05
MIN_CONSTANT = 5


@dataclass(frozen=True)
class Periodicity:
    """Bubbles in the steps with step % period_steps == phase.

    `mean_s` is the bubble time of such a step, `other_mean_s` that of the others, `excess_s`
    the difference over all occurrences together: what the pattern costs. `explained` is the
    share of the variance over steps. `settings` names configured frequencies that fit.
    """

    period_steps: int
    phase: int
    occurrences: int
    mean_s: float
    other_mean_s: float
    excess_s: float
    period_s: float | None
    explained: float
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConstantGap:
    """Bubbles that are all equally long: a sleep or a timeout rather than work."""

    occurrences: int
    mean_s: float
    std_s: float


def periodic(
    bubbles: pl.DataFrame,
    steps: pl.DataFrame,
    frequencies: Mapping[str, int] | None = None,
) -> tuple[Periodicity, ...]:
    """Return the periodic patterns in `bubbles` (start_ns, end_ns), the strongest first.

    `steps` has the columns step and start_ns. A bubble belongs to the step that began last
    before it, so validation behind a step counts to that step. `frequencies` are settings in
    steps (`trainer.test_freq`: 5) to name a pattern by. Empty with less than eight steps.
    """
    ordered = (
        steps.drop_nulls(["step", "start_ns"])
        .sort("start_ns")
        .unique("step", keep="first", maintain_order=True)
    )
    if len(ordered) < 2 * MIN_OCCURRENCES + 2:
        return ()
    numbers = ordered["step"].to_numpy().astype(np.int64)
    starts = ordered["start_ns"].to_numpy()
    values = step_series(bubbles, ordered)
    found: list[Periodicity] = []
    while len(found) < MAX_PATTERNS:
        best = _strongest(values, numbers)
        if best is None:
            break
        period, phase, _ = best
        hit = numbers % period == phase
        found.append(_pattern(values, hit, starts, best, frequencies or {}))
        values = np.where(hit, values - values[hit].mean() + values[~hit].mean(), values)
    return tuple(found)


def step_series(bubbles: pl.DataFrame, ordered: pl.DataFrame) -> Series:
    """Return the bubble seconds that began in each of the `ordered` steps, up to the next."""
    starts = ordered["start_ns"].to_numpy()
    index = np.searchsorted(starts, bubbles["start_ns"].to_numpy(), side="right") - 1
    seconds = ((bubbles["end_ns"] - bubbles["start_ns"]) / 1e9).to_numpy()
    inside = index >= 0
    sums = np.bincount(index[inside], weights=seconds[inside], minlength=len(starts))
    return sums.astype(np.float64)


def _strongest(values: Series, numbers: NDArray[np.int64]) -> tuple[int, int, float] | None:
    """Return (period, phase, explained variance) of the best significant pattern."""
    total = float(((values - values.mean()) ** 2).sum())
    largest = min(len(values) // MIN_OCCURRENCES, MAX_PERIOD)
    if total <= 1e-12 or largest < 2:
        return None
    best, tried = (0, 0, 0.0), 0
    for period in range(2, largest + 1):
        explained = _explained(values, numbers % period, period, total)
        phase = int(np.argmax(explained))
        tried += period
        if explained[phase] > best[2] + 1e-9:
            best = (period, phase, float(explained[phase]))
    return best if _is_significant(best[2], len(values), tried) else None


def _explained(values: Series, phases: NDArray[np.int64], period: int, total: float) -> Series:
    """Return for each phase the share of variance that two levels explain.

    Phases with too few occurrences, or that do not stand out, explain nothing.
    """
    count = np.bincount(phases, minlength=period).astype(float)
    sums = np.bincount(phases, weights=values, minlength=period)
    others = len(values) - count
    with np.errstate(divide="ignore", invalid="ignore"):
        usual = (values.sum() - sums) / others
        lift = sums / count - usual
        explained = lift**2 * count * others / len(values) / total
    usable = (count >= MIN_OCCURRENCES) & (others > 0) & (lift > MIN_LIFT * usual)
    return np.where(usable, explained, 0.0)


def _is_significant(explained: float, steps: int, tried: int) -> bool:
    if explained < MIN_EXPLAINED:
        return False
    if explained >= 1 - 1e-9:
        return True
    statistic = explained / (1 - explained) * (steps - 2)
    return f_upper(statistic, (1, steps - 2)) * tried < SIGNIFICANCE


def _pattern(
    values: Series,
    hit: NDArray[np.bool_],
    starts: NDArray[np.int64],
    best: tuple[int, int, float],
    frequencies: Mapping[str, int],
) -> Periodicity:
    period, phase, explained = best
    inside, outside = float(values[hit].mean()), float(values[~hit].mean())
    occurrences = int(hit.sum())
    return Periodicity(
        period_steps=period,
        phase=phase,
        occurrences=occurrences,
        mean_s=inside,
        other_mean_s=outside,
        excess_s=(inside - outside) * occurrences,
        period_s=float(np.median(np.diff(starts[hit]))) / 1e9,
        explained=explained,
        settings=tuple(name for name, every in frequencies.items() if every == period),
    )


def constant_gap(bubbles: pl.DataFrame) -> ConstantGap | None:
    """Return the common length of `bubbles`, None where they vary or are fewer than five.

    Worked example (prime-rl PR#2960): gaps of 20.1, 20.0, 20.0, 20.2 and 20.1 s are an
    unconditional pause of 20 s.
    """
    seconds = (bubbles["end_ns"] - bubbles["start_ns"]).to_numpy() / 1e9
    if len(seconds) < MIN_CONSTANT or seconds.mean() <= 0:
        return None
    mean, std = float(seconds.mean()), float(seconds.std())
    return ConstantGap(len(seconds), mean, std) if std <= CONSTANT_CV * mean else None
