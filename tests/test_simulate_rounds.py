"""How many versions a setting is measured over: validations and checkpoints in whole rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import job

from rlinsight.analyzers.simulate import predict_change, simulate, sweep
from rlinsight.analyzers.simulate.rounds import versions_of, versions_of_both
from rlinsight.analyzers.simulate.validations import with_validations

#: Many rounds of any interval below.
LONG = 600


def validating(every: int | None, **settings):
    """Updates of 3 s; a validation takes some 20 s more."""
    costs = {"validation_requests": 4, **settings.pop("costs", {})}
    return job(validation=(20,), validation_interval=every, costs=costs, **settings)


@pytest.mark.parametrize(
    ("every", "saves", "versions"),
    [(None, None, 30), (20, None, 20), (40, None, 40), (4, 6, 24), (20, 25, 100), (None, 40, 40)],
)
def test_measured_versions_are_whole_rounds(every, saves, versions):
    work = validating(every, checkpoint_interval=saves, costs={"checkpoint_s": 5.0})
    assert versions_of(work, work.knobs) == versions


def test_what_costs_nothing_that_is_known_is_not_waited_for():
    never = validating(40, costs={"validation_requests": 0})
    assert versions_of(never, never.knobs) == 30
    free = validating(None, checkpoint_interval=40)
    assert versions_of(free, free.knobs) == 30


def test_large_versions_are_measured_over_a_round_as_far_as_it_stays_small():
    large = validating(10, mini_batch=512, group_size=8)  # 4096 responses a version
    assert versions_of(large, large.knobs) == 10
    assert versions_of(large, replace(large.knobs, validation_interval=50)) == 8


def test_equal_intervals_are_measured_over_the_same_versions():
    work = validating(None)
    larger = work.knobs.changed({"mini_batch": 2000})
    assert versions_of_both(work, work.knobs, larger) == (10, 10)


@pytest.mark.parametrize("mode", ["sync", "separate_async", "fully_async"])
def test_validations_of_unknown_work_are_left_out(mode):
    never = job(mode, lengths=(30,), costs={"validation_requests": 0})
    found = predict_change(never, {"validation_interval": 1})
    assert found.tokens_per_s.value == 0
    assert "validation_interval" in {leap.about for leap in found.after.outside}


@pytest.mark.parametrize(("before", "after"), [(20, 25), (25, 20), (34, 10), (100, 10)])
def test_another_interval_is_predicted_as_over_a_long_run(before, after):
    """20 versions hold no validation of every 25: its whole cost would seem to be gained."""
    work = validating(before)
    found = predict_change(work, {"validation_interval": after}).tokens_per_s.value
    truth = predict_change(work, {"validation_interval": after}, versions=LONG).tokens_per_s.value
    assert found == pytest.approx(truth, abs=0.005)


def test_checkpoints_are_predicted_as_over_a_long_run():
    work = job(checkpoint_interval=40, costs={"checkpoint_s": 200.0})
    often = {"checkpoint_interval": 10}
    truth = predict_change(work, often, versions=LONG).tokens_per_s.value
    assert predict_change(work, often).tokens_per_s.value == pytest.approx(truth, abs=0.005)
    own, over_long = simulate(work).tokens_per_s.value, simulate(work, versions=LONG)
    assert own == pytest.approx(over_long.tokens_per_s.value, rel=0.01)


def test_a_sweep_shows_that_rarer_validations_cost_less_and_not_nothing():
    found = sweep(validating(10), {"validation_interval": [10, 50, -1]}, seeds=(0, 1))
    often, rarely, never = (point.prediction.tokens_per_s.value for point in found.points)
    assert often < rarely < 0.99 * never


def test_a_large_run_that_validates_rarely_can_be_calibrated():
    """2,000 versions of 8,192 responses are too many to simulate for two validations."""
    large = {"mini_batch": 512, "group_size": 16, "concurrent_samples": 1000, "max_num_seqs": 1024}
    found = with_validations(validating(1000, rollout_devices=8, **large), np.array([25.0]))
    assert 0 < found.costs.validation_rest_s < 25
