"""Plateau and knee: by hand, by property, on the simulator's runs."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import job

from rlinsight.analyzers.compare.compare import SETTINGS
from rlinsight.analyzers.compare.configs import Variable
from rlinsight.analyzers.compare.plateau import Gain, knee, plateau
from rlinsight.analyzers.compare.series import LEAST_RATE, Response, series
from rlinsight.analyzers.gate.comparison import compare
from rlinsight.analyzers.gate.metrics import Series
from rlinsight.analyzers.gate.observation import Observation
from rlinsight.analyzers.gate.settings import MetricSettings
from rlinsight.analyzers.simulate.predict import simulate_run

WINDOWS = 12


def gains(values: dict[float, float], margin: float, least: float) -> list[Gain]:
    """All pairs of exactly known waits (smaller is better), each known to +- `margin`."""
    found = []
    for before, after in combinations(values, 2):
        gain = values[before] - values[after]
        low, high = gain - margin, gain + margin
        found.append(Gain(before, after, gain, low, high, 0.0 if low > 0 or high < 0 else 1.0,
                          gain > least and low > 0, gain < -least and high < 0))  # fmt: skip
    return found


WAITS = {0.3: 0.30, 0.5: 0.18, 0.7: 0.17, 0.9: 0.17}


def test_the_worked_example():
    found = plateau(list(WAITS), gains(WAITS, 0.005, 0.02), 0.02)
    assert (found.start, found.shown, found.falls_at) == (0.5, True, None)
    noisy = plateau(list(WAITS), gains(WAITS, 0.03, 0.02), 0.02)
    assert (noisy.start, noisy.shown) == (0.5, False)
    assert noisy.hidden == pytest.approx(0.04)


def test_a_curve_that_still_rises_has_no_plateau():
    waits = {1: 0.5, 2: 0.4, 4: 0.3}
    assert plateau(list(waits), gains(waits, 0.01, 0.02), 0.02) is None


def test_small_steps_that_add_up_are_no_plateau():
    """Each step is below what matters, yet the last setting is far better than the first."""
    waits = {i: 0.30 - 0.015 * i for i in range(5)}
    assert plateau(list(waits), gains(waits, 0.001, 0.02), 0.02).start == 3


def test_a_curve_that_falls_again_says_where():
    waits = {1: 0.30, 2: 0.10, 3: 0.11, 4: 0.25}
    found = plateau(list(waits), gains(waits, 0.01, 0.02), 0.02)
    assert (found.start, found.falls_at) == (2, 4)


def test_the_knee_is_where_most_of_the_gain_is_had():
    values = {1: 0.0, 2: 7.0, 3: 8.5, 4: 9.3, 5: 10.0}
    pairs = gains({k: -v for k, v in values.items()}, 0.1, 0.2)
    assert knee(values, pairs, 5) == 2
    straight = {k: 2.5 * (k - 1) for k in values}
    assert knee(straight, gains({k: -v for k, v in straight.items()}, 0.1, 0.2), 5) is None


# ---- from the windows of runs ------------------------------------------------------------------


def run(rate: float, noise: float, seed: int, wait: float = 0.2) -> Observation:
    """Windows of 10 s at `rate` tokens/s, each off by `noise`."""
    rng = np.random.default_rng(seed)
    tokens = 10 * rate * np.exp(noise * rng.standard_normal(WINDOWS))
    return Observation(
        source="trace", run_id=f"run{seed}", recorded_ns=0, identity={},
        devices={"trainer": 1},
        windows={
            "seconds": (10.0,) * WINDOWS, "tokens": tuple(tokens),
            "samples": tuple(tokens / 100), "trainer/bubble.wait_samples": (10 * wait,) * WINDOWS,
        },
    )  # fmt: skip


def respond(at: list[float], runs: list[Observation], metric="tokens_per_s_per_device") -> Response:
    names = [f"{setting:g}" for setting in at]
    found = series(Variable("knob", tuple(at), ()), names, runs, SETTINGS)
    return next(one for one in found.responses if one.metric == metric)


def test_repeats_of_a_setting_are_one_point():
    runs = [run(100, 0.01, 1), run(100, 0.01, 2), run(130, 0.01, 3), run(130, 0.01, 4)]
    found = respond([1, 1, 2, 2], runs)
    assert [point.runs for point in found.points] == [("1", "1"), ("2", "2")]
    assert found.plateau is None


def test_waits_are_shares_and_their_gain_is_in_points():
    runs = [run(100, 0.01, i, wait) for i, wait in enumerate((0.3, 0.18, 0.178))]
    found = respond([0.3, 0.5, 0.7], runs, "wait.trainer")
    assert found.gains[0].gain == pytest.approx(0.12)
    assert (found.plateau.start, found.plateau.shown) == (0.5, True)


@given(
    truth=st.lists(st.floats(0.1, 0.4), min_size=1, max_size=3),
    flat=st.integers(2, 3),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_a_rise_that_stops_has_its_plateau_where_it_stops(truth, flat, seed):
    """Monotone steps far above the noise, then none: whatever the noise, the corner is found."""
    rates = [100.0]
    for step in truth:
        rates.append(rates[-1] * (1 + step))
    rates += [rates[-1]] * flat
    runs = [run(rate, 0.01, seed + i) for i, rate in enumerate(rates)]
    found = respond([float(i) for i in range(len(rates))], runs)
    assert found.plateau is not None
    assert found.plateau.start == len(truth)


@given(
    rates=st.lists(st.floats(50, 500), min_size=3, max_size=6),
    seed=st.integers(0, 10_000),
    noise=st.floats(0.0, 0.2),
    scale=st.sampled_from([0.001, 1.0, 1000.0]),
)
@settings(max_examples=60, deadline=None)
def test_laws_of_any_curve(rates, seed, noise, scale):
    runs = [run(rate, noise, seed + i) for i, rate in enumerate(rates)]
    at = [float(i) for i in range(len(rates))]
    found = respond(at, runs)
    if found.plateau is not None:
        later = [one for one in found.gains if one.before == found.plateau.start]
        assert not any(one.real for one in later)
        assert found.plateau.shown == all(one.high <= LEAST_RATE for one in later)
        earlier = [setting for setting in at if setting < found.plateau.start]
        for setting in earlier:
            assert any(one.real for one in found.gains if one.before == setting)
    # The order in which runs are given, and the unit of the rate, are nothing to it.
    turned = respond(at[::-1], runs[::-1])
    assert turned.plateau == found.plateau
    scaled = respond(at, [run(rate * scale, noise, seed + i) for i, rate in enumerate(rates)])
    assert (scaled.plateau is None) == (found.plateau is None)
    if scaled.plateau is not None:
        assert scaled.plateau.start == found.plateau.start


def test_equal_runs_rarely_seem_to_rise():
    """Sixty series of five equal settings at 5 % noise: the plateau is nearly always the first."""
    starts = []
    for seed in range(60):
        runs = [run(100, 0.05, 100 * seed + i) for i in range(5)]
        starts.append(respond([1, 2, 3, 4, 5], runs).plateau)
    wrong = sum(one is None or one.start != 1 for one in starts)
    assert wrong <= 6  # alpha is 5 %: 3 are expected


def test_case_noise_level_comparison():
    """Two pairs of single step times that differ by -2.8 % and +1.7 %: no difference."""
    cases = json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
    case = next(one for one in cases if one["id"] == "noise-level-comparison")
    step = MetricSettings(0.05, 0.0, "lower", gates=True, match_length=False)
    for before, after in case["input"]["step_s_pairs"]:
        one, other = (Series(np.array([s]), np.ones(1), single=True) for s in (before, after))
        found = compare(other, [one], step, SETTINGS)
        assert not found.outside
        assert found.low < 0 < found.high


# ---- the simulator's runs ----------------------------------------------------------------------


def simulated(staleness: float) -> Observation:
    """A fully asynchronous run whose quota is too small until a staleness of about one."""
    calibration = job(
        lengths=(2, 3, 4, 9), train_s=3.0, mini_batch=4, staleness_threshold=staleness,
        sync_step=2, concurrent_samples=16,
    )  # fmt: skip
    marks = simulate_run(calibration, calibration.knobs, 0, 40).marks[4:]
    columns: dict[str, list[float]] = {
        "seconds": [], "tokens": [], "samples": [], "trainer/bubble.wait_samples": []
    }  # fmt: skip
    for a, b in pairwise(marks):
        columns["seconds"].append(b.now - a.now)
        columns["tokens"].append(b.tokens - a.tokens)
        columns["samples"].append(float(b.samples - a.samples))
        columns["trainer/bubble.wait_samples"].append(b.states["wait"] - a.states["wait"])
    return Observation(
        source="trace", run_id=None, recorded_ns=0, identity={},
        devices={"trainer": 1}, windows={k: tuple(v) for k, v in columns.items()},
    )  # fmt: skip


def test_staleness_has_a_plateau_on_the_simulator():
    at = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0]
    runs = [simulated(staleness) for staleness in at]
    waits = respond(at, runs, "wait.trainer")
    means = [point.value for point in waits.points]
    assert means[0] > means[-1] + 0.1
    assert waits.plateau is not None
    start = at.index(waits.plateau.start)
    # From there on the wait stays, before it the wait is larger by more than what matters.
    assert max(means[start:]) - min(means[start:]) <= 0.05
    assert min(means[:start]) - means[start] > 0.02
    assert respond(at, runs).plateau is not None
