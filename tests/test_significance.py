"""The tail probabilities agree with scipy.stats, whose import a report does without."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlinsight.analyzers.quality.trends import theil_sen
from rlinsight.analyzers.significance import (
    f_upper,
    kendall_two_sided,
    poisson_above,
    student_margin,
    student_two_sided,
)

VALUES = st.integers(-5, 5) | st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


def test_the_worked_example_of_kendall():
    assert kendall_two_sided([1, 2, 3, 4]) == pytest.approx(1 / 12)
    assert kendall_two_sided([7, 7, 7]) == 1.0


@given(st.lists(VALUES, min_size=2, max_size=80))
def test_kendall(values):
    series = np.asarray(values, float)
    if (series == series[0]).all():
        assert kendall_two_sided(series) == 1.0
    else:
        expected = stats.kendalltau(np.arange(len(series)), series).pvalue
        assert kendall_two_sided(series) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_kendall_of_a_long_series():
    series = np.random.default_rng(3).normal(size=3000) + np.arange(3000) / 3e4
    expected = stats.kendalltau(np.arange(3000), series).pvalue
    assert kendall_two_sided(series) == pytest.approx(expected, rel=1e-9)


@given(st.floats(-50, 50), st.floats(0.5, 500))
def test_student(statistic, freedom):
    expected = 2 * stats.t.sf(abs(statistic), freedom)
    assert student_two_sided(statistic, freedom) == pytest.approx(expected, rel=1e-9)
    assert student_margin(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


@given(st.floats(0, 100), st.integers(1, 200))
def test_f(statistic, freedom):
    expected = stats.f.sf(statistic, 1, freedom)
    assert f_upper(statistic, (1, freedom)) == pytest.approx(expected, rel=1e-9)


@given(st.integers(-1, 60), st.floats(0.01, 80))
def test_poisson(count, mean):
    expected = stats.poisson.sf(count, mean)
    assert poisson_above(count, mean) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(st.lists(VALUES, min_size=2, max_size=60))
def test_theil_sen(values):
    series = np.asarray(values, float)
    assert theil_sen(series) == pytest.approx(stats.theilslopes(series)[0], rel=1e-12, abs=1e-12)


def test_the_analysis_does_without_scipy_stats():
    code = "import sys, rlinsight.analyzers.report; assert 'scipy.stats' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
