"""The statistics of the gate, on the worked examples of their docstrings and against others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlinsight.analyzers.device_time.steady import bootstrap_interval
from rlinsight.analyzers.gate.comparison import _between, compare
from rlinsight.analyzers.gate.matching import match
from rlinsight.analyzers.gate.metrics import Series
from rlinsight.analyzers.gate.multiplicity import adjusted
from rlinsight.analyzers.gate.settings import MetricSettings, Settings
from rlinsight.analyzers.gate.variance import Spread, block_variance, ratio_variance, total

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20)


def series(amount, per=None, **conditions) -> Series:
    amount = np.asarray(amount, float)
    per = np.ones(len(amount)) if per is None else np.asarray(per, float)
    return Series(amount, per, {k: np.asarray(v, float) for k, v in conditions.items()})


# -- the spread of one run -----------------------------------------------------------------


def test_block_variance_of_the_worked_example():
    spread = block_variance(np.array([-1.5, -0.5, 0.5, 1.5]))
    assert spread.variance == pytest.approx(2 / 3)
    assert spread.freedom == pytest.approx(1.5)


def test_one_window_says_nothing_about_its_spread():
    assert block_variance(np.array([0.0])) == Spread(0.0, 0.0)


def test_it_is_what_the_moving_block_bootstrap_converges_to():
    """Many draws of `bootstrap_interval`, whose blocks are as long, give the same spread."""
    rng = np.random.default_rng(3)
    top, bottom = rng.normal(10, 1, 300), rng.normal(2, 0.1, 300)
    low, high = bootstrap_interval(top, bottom, draws=2000)
    spread = ratio_variance(top, bottom)
    assert (high - low) / 2 / 1.96 == pytest.approx(np.sqrt(spread.variance), rel=0.06)


def test_neighbours_that_resemble_each_other_widen_it():
    rng = np.random.default_rng(5)
    fresh = rng.normal(size=64)
    similar = np.convolve(fresh, np.ones(3) / np.sqrt(3), mode="same")
    independent = block_variance(fresh - fresh.mean()).variance
    assert block_variance(similar - similar.mean()).variance > 1.5 * independent


def test_the_interval_of_a_mean_covers_it():
    """95 % intervals over 20 windows of independent noise hold the truth in 93 to 97 %."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(800):
        values = rng.normal(10, 1, 20)
        spread = block_variance(values - values.mean())
        margin = stats.t.ppf(0.975, spread.freedom) * np.sqrt(spread.variance)
        held += abs(values.mean() - 10) <= margin
    assert 0.91 < held / 800 < 0.98


def test_a_sum_of_parts_has_the_freedom_of_welch_and_satterthwaite():
    found = total([(1.0, Spread(2.0, 5)), (1.0, Spread(3.0, 10))])
    assert found.variance == 5
    assert found.freedom == pytest.approx(25 / (4 / 5 + 9 / 10))
    assert total([(1.0, Spread(2.0, 0))]).freedom == np.inf


# -- between runs --------------------------------------------------------------------------


def test_the_spread_between_runs_is_moderated():
    own = [Spread(0.0, 5)] * 3
    found = _between(np.array([98.0, 100.0, 102.0]), own, 1.0)
    assert (found.variance, found.freedom) == (pytest.approx(1.6), 10)


def test_one_run_leaves_the_assumed_spread():
    assert _between(np.array([100.0]), [Spread(4.0, 5)], 1.5) == Spread(2.25, 8)


def test_what_windows_explain_is_not_counted_again_between_runs():
    found = _between(np.array([99.0, 101.0]), [Spread(2.0, 5)] * 2, 0.0)
    assert found.variance == 0


# -- matching ------------------------------------------------------------------------------


def test_longer_responses_are_no_regression():
    """The worked example: 0.1 s per token in both runs, the new one at longer responses."""
    old = series([10, 20, 30], length=[100, 200, 300])
    new = series([20, 30, 40], length=[200, 300, 400])
    matched = match([old, new], ["length"])
    assert matched.slopes == pytest.approx([0.1])
    assert matched.offsets[-1] == pytest.approx(10)


def test_a_difference_between_runs_does_not_leak_into_the_slope():
    old = series([10, 20, 30], length=[100, 200, 300])
    new = series([70, 80, 90], length=[200, 300, 400])
    assert match([old, new], ["length"]).slopes == pytest.approx([0.1])


def test_a_condition_that_does_not_vary_is_left_out():
    old = series([10, 20, 31], length=[100, 200, 300], validations=[0, 0, 0])
    new = series([21, 30, 40], length=[200, 300, 400], validations=[0, 0, 0])
    assert match([old, new], ["validations", "length"]).names == ("length",)


def test_the_same_condition_twice_is_used_once():
    lengths = [100.0, 200, 300, 260]
    runs = [series([1, 2, 3, 4], length=lengths, validations=lengths) for _ in range(2)]
    assert match(runs, ["validations", "length"]).names == ("validations",)


def test_too_few_windows_are_not_matched():
    runs = [series([1, 2], length=[1, 2]), series([2, 3], length=[2, 3])]
    assert match(runs, ["length"]).names == ()


def test_an_unknown_length_is_not_matched():
    runs = [series([1, 2, 3, 4], length=[1, 2, np.nan, 3]), series([1, 2, 3, 4], length=[1] * 4)]
    assert match(runs, ["length"]).names == ()


@given(st.floats(0.5, 2.0), st.integers(0, 1000))
def test_matching_keeps_the_value_of_a_run(scale, seed):
    rng = np.random.default_rng(seed)
    old = series(rng.uniform(1, 2, 8), rng.uniform(1, 2, 8), length=rng.uniform(50, 90, 8))
    new = series(rng.uniform(1, 2, 8) * scale, rng.uniform(1, 2, 8), length=rng.uniform(50, 90, 8))
    for run, amount in zip((old, new), match([old, new], ["length"]).amounts, strict=True):
        assert amount.sum() / run.per.sum() == pytest.approx(run.value)


# -- the comparison ------------------------------------------------------------------------

PLAIN = MetricSettings(0.05, 0.0, "lower", gates=True, match_length=False)


def test_the_corridor_is_the_larger_of_relative_and_absolute():
    runs = series([10.0] * 6), [series([10.0] * 6)]
    assert compare(*runs, PLAIN, Settings()).corridor == pytest.approx(0.5)
    wide = MetricSettings(0.05, 2.0, "lower")
    assert compare(*runs, wide, Settings()).corridor == 2.0


def test_the_reference_is_the_mean_of_the_accepted_runs():
    found = compare(series([12.0] * 6), [series([9.0] * 6), series([11.0] * 6)], PLAIN, Settings())
    assert (found.reference, found.change, found.relative) == (10, 2, pytest.approx(0.2))


def test_without_noise_the_assumed_spread_between_runs_is_all():
    """Corridor 0.5, a fifth of it assumed between runs: error 0.1 x sqrt(2), p by Student's t."""
    found = compare(series([10.4] * 6), [series([10.0] * 6)], PLAIN, Settings())
    assert found.error == pytest.approx(0.1 * np.sqrt(2))
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.4 / found.error, found.freedom))
    assert found.freedom == pytest.approx(8)


def test_more_accepted_runs_make_a_smaller_change_detectable():
    rng = np.random.default_rng(1)
    runs = [series(rng.normal(10, 0.5, 20)) for _ in range(9)]
    one, many = (compare(runs[0], runs[1 : 1 + k], PLAIN, Settings()) for k in (1, 8))
    assert many.detectable(0.01) < one.detectable(0.01)


def test_the_smallest_detectable_change_is_no_smaller_than_the_corridor():
    settings = Settings(run_to_run=0.0)
    found = compare(series([10.0] * 6), [series([10.0] * 6)], PLAIN, settings)
    assert found.detectable(0.01) == found.corridor


# -- many metrics --------------------------------------------------------------------------


def test_the_worked_example_of_the_corrections():
    assert adjusted([0.01, 0.02, 0.03], "bh") == pytest.approx([0.03, 0.03, 0.03])
    assert adjusted([0.01, 0.02, 0.03], "holm") == pytest.approx([0.03, 0.04, 0.04])
    assert adjusted([0.5, 0.01], "none") == [0.5, 0.01]


@given(P_VALUES)
def test_benjamini_hochberg_is_that_of_scipy(p_values):
    expected = stats.false_discovery_control(p_values, method="bh")
    assert adjusted(p_values, "bh") == pytest.approx(list(expected))


@given(P_VALUES)
def test_holm_is_no_more_lenient_than_benjamini_hochberg(p_values):
    pairs = zip(adjusted(p_values, "holm"), adjusted(p_values, "bh"), strict=True)
    assert all(holm >= bh - 1e-12 for holm, bh in pairs)
