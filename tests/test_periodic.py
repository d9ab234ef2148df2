"""Periodic bubbles: period and phase come from the data."""

from __future__ import annotations

import random

import polars as pl
import pytest
from timelines import S

from rlinsight.analyzers.engines.periodic import constant_gap, periodic


def intervals(*rows: tuple[float, float]) -> pl.DataFrame:
    """Rows of (start_s, end_s)."""
    ns = [(round(start * S), round(end * S)) for start, end in rows]
    return pl.DataFrame(ns, schema={"start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")


def steps(first: int, count: int, width: float = 10) -> pl.DataFrame:
    rows = [(first + i, round(i * width * S)) for i in range(count)]
    return pl.DataFrame(rows, schema={"step": pl.Int32, "start_ns": pl.Int64}, orient="row")


def at(step: int, seconds: float, offset: float = 2, width: float = 10) -> tuple[float, float]:
    start = (step - 1) * width + offset
    return start, start + seconds


def test_the_worked_example_validation_every_five_steps():
    bubbles = intervals(*(at(step, 4) for step in (5, 10, 15, 20)))
    (found,) = periodic(bubbles, steps(1, 20), {"trainer.test_freq": 5, "trainer.save_freq": 20})
    assert (found.period_steps, found.phase, found.occurrences) == (5, 0, 4)
    assert (found.mean_s, found.other_mean_s, found.excess_s) == (4.0, 0.0, 16.0)
    assert found.period_s == 50.0
    assert found.settings == ("trainer.test_freq",)


def test_the_phase_is_that_of_the_step_numbers_not_of_the_recording():
    bubbles = intervals(*(at(i + 1, 3) for i in range(24) if (100 + i) % 4 == 3))
    (found,) = periodic(bubbles, steps(100, 24))
    assert (found.period_steps, found.phase) == (4, 3)


def test_two_patterns_are_told_apart_under_noise():
    noise = random.Random(3)
    rows = [at(step, 0.5 + noise.random() * 0.2, offset=1) for step in range(1, 61)]
    rows += [at(step, 5 + noise.random(), offset=2) for step in range(5, 61, 5)]
    rows += [at(step, 6 + noise.random(), offset=3, width=10) for step in range(3, 61, 12)]
    found = periodic(intervals(*rows), steps(1, 60))
    assert {(p.period_steps, p.phase) for p in found} == {(5, 0), (12, 3)}


@pytest.mark.parametrize("seed", range(5))
def test_irregular_bubbles_have_no_period(seed):
    noise = random.Random(seed)
    rows = [at(step, noise.expovariate(1)) for step in range(1, 61)]
    assert periodic(intervals(*rows), steps(1, 60)) == ()


def test_the_same_bubble_in_every_step_is_no_pattern_over_steps_but_a_constant():
    rows = [at(step, 20 + step % 3 * 0.1, width=60) for step in range(1, 21)]
    assert periodic(intervals(*rows), steps(1, 20, 60)) == ()
    gap = constant_gap(intervals(*rows))
    assert gap.mean_s == pytest.approx(20.1, abs=0.05)


def test_few_steps_and_varying_gaps_say_nothing():
    assert periodic(intervals(at(2, 4), at(4, 4)), steps(1, 5)) == ()
    assert constant_gap(intervals(*((0, 1 + i) for i in range(8)))) is None
