"""How often the gate cries wolf and how often it misses, at the recorded noise levels.

benchmarks/gate.py does the same with more runs and writes the table in docs/check.md.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from gating import gate_benchmark, gate_runs

NULL_COMPARISONS = 500
SLOWED = 160
NOISES = gate_benchmark.NOISES


def kind(noise: float) -> gate_runs.Kind:
    return gate_runs.Kind(noise=noise, machine=gate_benchmark.MACHINE)


@pytest.fixture(scope="module")
def slowed():
    """Pairs of runs at each noise level, the new one slowed by 1 x and 3 x the detectable."""
    seeds = range(SLOWED // len(NOISES))
    trial = gate_benchmark.trial
    return {noise: [trial(kind(noise), 1, s, compare=False) for s in seeds] for noise in NOISES}


def test_at_most_two_in_a_hundred_equal_runs_fail():
    reds = [
        gate_benchmark.null_trial(kind(noise), 1, seed)[0]
        for noise in NOISES
        for seed in range(NULL_COMPARISONS // len(NOISES))
    ]
    assert len(reds) == NULL_COMPARISONS
    assert sum(reds) / len(reds) <= 0.02


@pytest.mark.parametrize("noise", NOISES)
def test_three_times_the_smallest_detectable_change_is_caught(slowed, noise):
    caught = [trial.slowed for trial in slowed[noise]]
    assert sum(caught) / len(caught) >= 0.95


def test_the_smallest_detectable_change_is_caught_about_as_often_as_is_said(slowed):
    """Said is 80 % for a metric that moves alone, with the spread that was assumed."""
    caught = [trial.barely for some in slowed.values() for trial in some]
    assert sum(caught) / len(caught) > 0.6


def test_it_grows_with_the_noise(slowed):
    sizes = [statistics.mean(t.detectable for t in slowed[noise]) for noise in NOISES]
    # Below a spread of 1 % per step the assumed spread between runs is all that counts.
    assert sizes[1:] == sorted(sizes[1:])
    assert sizes[0] < 0.1 < sizes[-1]


def test_longer_responses_do_not_make_it_cry_wolf():
    longer = gate_runs.Kind(noise=0.03, longer=1.2)
    reds = 0
    for seed in range(40):
        old = gate_runs.observation(replace(longer, longer=1.0), 1000 * seed + 1)
        reds += gate_benchmark.red(gate_runs.observation(longer, 1000 * seed + 2), [old])
    assert reds <= 2


def test_the_rules_of_others_see_the_same_runs():
    """At 9 % per step, a 5 % rule cries wolf; a 200 % rule misses a run at half the speed."""
    found = [gate_benchmark.trial(kind(0.09), 1, seed).rules for seed in range(30)]
    wolf = sum(rules["pytest-benchmark `mean:5%`"]["null"] for rules in found)
    missed = sum(not rules["200 % (github-action-benchmark's)"]["25%"] for rules in found)
    assert wolf >= 3
    assert missed == 30
