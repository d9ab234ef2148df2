"""How well a calibration's numbers are known, and what the seeds make of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from simulated import job, world

import rlinsight
from rlinsight.analyzers.simulate import Calibration, simulate
from rlinsight.analyzers.simulate.client import Client
from rlinsight.analyzers.simulate.coarse import _spread
from rlinsight.analyzers.simulate.draw import drawn
from rlinsight.analyzers.simulate.fit_lags import client_times
from rlinsight.analyzers.simulate.fits import (
    Fit,
    constrained,
    linear_errors,
    mean_error,
    of_mean,
    of_median,
)
from rlinsight.analyzers.simulate.predict import simulate_run
from rlinsight.analyzers.simulate.rollouter import Rollouter
from rlinsight.analyzers.simulate.validations import with_validations

SAMPLES = Path(__file__).parent.parent / "sample_traces"


def test_a_cost_that_noise_makes_negative_is_nothing_with_a_residual():
    fit = of_mean("costs.sync_s", np.array([-0.3, 0.1, -0.1]))
    assert (fit.value, fit.observations) == (0.0, 3)
    assert fit.free == pytest.approx(-0.1)
    assert fit.error == pytest.approx(0.2 / math.sqrt(3))
    assert fit.residual == pytest.approx(0.1)
    assert fit.verdict == "not identifiable: below noise"


@pytest.mark.parametrize(
    ("free", "error", "seen", "verdict"),
    [
        (2.1, 1.0, 5, "fits"),
        (2.0, 1.0, 5, "not identifiable: below noise"),
        (-2.0, 1.0, 5, "not identifiable: below noise"),
        (-2.1, 1.0, 5, "not identifiable: the model explains more than there is"),
        (1.0, None, 1, "seen once: its noise is unknown"),
        (1.0, None, 5, "not identifiable: it never varied"),
    ],
)
def test_verdicts_on_both_sides_of_the_noise(free, error, seen, verdict):
    assert constrained("x", free, error, seen).verdict == verdict


def test_a_run_without_a_cost_has_seen_none_of_it():
    assert of_median("costs.dispatch_s", np.array([])) == Fit("costs.dispatch_s", 0.0, 0.0, None, 0)
    assert of_median("x", np.array([3.0, 1.0, 2.0])).value == 2.0
    assert mean_error(np.array([1.0])) is None


def test_errors_of_a_line():
    # Three points on a line but for 0.1: the classic formula, by hand.
    x = np.array([0.0, 1.0, 2.0])
    columns = np.column_stack([np.ones(3), x])
    residuals = np.array([0.1, -0.2, 0.1])
    slope = math.sqrt(0.06 / 1) / math.sqrt(2.0)
    assert linear_errors(columns, residuals)[1] == pytest.approx(slope)
    assert np.isinf(linear_errors(np.ones((3, 2)), residuals)).all()


# ---- what seeds draw -----------------------------------------------------------------------


def with_fits(*fits: Fit, **settings) -> Calibration:
    return replace(job(**settings), fits=fits)


def draws(calibration: Calibration, count: int = 400) -> list[Calibration]:
    rng = np.random.default_rng(0)
    return [drawn(calibration, rng) for _ in range(count)]


def test_without_fits_nothing_is_drawn():
    calibration = job()
    assert drawn(calibration, np.random.default_rng(0)) is calibration


def test_a_cost_below_noise_is_drawn_up_to_what_noise_could_hide():
    fit = constrained("costs.reward_s", -0.1, 0.2, 9)
    found = [one.costs.reward_s for one in draws(with_fits(fit))]
    assert min(found) >= 0
    # The mean of what lies above 0 of a normal distribution about -0.1 s with a deviation of 0.2 s.
    normal = NormalDist()
    above = -0.1 + 0.2 * normal.pdf(0.5) / (1 - normal.cdf(0.5))
    assert np.mean(found) == pytest.approx(above, rel=0.1)


def test_a_cost_that_the_recording_speaks_against_is_not_drawn_large():
    fit = constrained("decode.start_s", -3.0, 0.2, 500)
    assert max(one.decode.start_s for one in draws(with_fits(fit))) < 0.2


def test_a_known_cost_is_drawn_within_its_error():
    fit = constrained("costs.sync_s", 5.0, 0.1, 9)
    found = [one.costs.sync_s for one in draws(with_fits(fit))]
    assert np.mean(found) == pytest.approx(5.0, abs=0.02)
    assert np.std(found) == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize("error", [0.3, None])
def test_a_slope_turns_about_what_was_measured(error):
    fit = Fit("decode.per_running_s", 0.1, 0.1, error, 9)
    base = with_fits(fit, token_s=1.0, per_running_s=0.1)
    base = replace(base, decode=replace(base.decode, mean_running=10.0))
    found = [one.decode for one in draws(base)]
    at_mean = [one.base_s + one.per_running_s * 10 for one in found]
    assert at_mean == pytest.approx([2.0] * len(found))
    assert np.std([one.per_running_s for one in found]) > 0.04
    assert min(min(one.per_running_s, one.base_s) for one in found) >= 0


def test_training_turns_about_the_tokens_seen():
    fit = Fit("training.per_token_s", 0.0, -0.001, 0.002, 9)
    base = with_fits(fit, train_s=4.0)
    base = replace(base, training=replace(base.training, tokens=(900.0, 1100.0)))
    for one in draws(base, 50):
        assert one.training.fixed_s + 1000 * one.training.per_token_s == pytest.approx(4.0)


def test_an_unidentifiable_cost_widens_the_prediction():
    sure = simulate(job("sync", lengths=(7,)), versions=6).tokens_per_s
    fit = constrained("costs.driver_update_s", -0.5, 0.5, 5)
    doubtful = simulate(with_fits(fit, mode="sync", lengths=(7,)), versions=6).tokens_per_s
    assert sure.high - sure.low == 0
    assert doubtful.high - doubtful.low > 0.05 * doubtful.value


# ---- where they come from ------------------------------------------------------------------


def test_a_validation_that_is_shorter_than_simulated_is_reported_not_hidden():
    # Simulated validations generate 2 s of tokens; the recorded ones took 1 s.
    calibration = job(validation_interval=1, costs={"validation_requests": 1})
    found = with_validations(calibration, np.array([1.0, 1.0]))
    (fit,) = found.fits
    assert found.costs.validation_rest_s == 0.0 == fit.value
    assert fit.free == pytest.approx(-1.0)
    longer = with_validations(calibration, np.array([5.0, 5.0]))
    assert longer.costs.validation_rest_s == pytest.approx(3.0)


def test_a_maximum_beyond_any_log_normal_leaves_a_residual():
    sigma, short = _spread(100.0, 300.0, 128)
    assert short == 0
    assert 0 < sigma < 1
    sigma, short = _spread(100.0, 1e6, 128)
    assert short == pytest.approx(math.log(1e4) - sigma**2 / 2)


def test_a_recorded_run_says_how_well_everything_fits():
    calibration = Calibration.from_trace(rlinsight.open(SAMPLES / "fully_async"))
    fits = {fit.name: fit for fit in calibration.fits}
    # More running at once does not make a response slower there: the slope would be negative.
    slope = fits["decode.per_running_s"]
    assert slope.value == 0 > slope.free
    assert fits["decode.base_s"].verdict == "fits"
    for name in ("costs.sync_s", "costs.submit_s", "training.per_token_s"):
        assert fits[name].observations > 1
    for fit in calibration.fits:
        part, name = fit.name.split(".")
        assert getattr(getattr(calibration, part), name) == pytest.approx(fit.value)
    assert Calibration.from_dict(json.loads(calibration.to_json())).fits == calibration.fits


def test_a_burst_arrives_one_prompt_after_the_other():
    handed, arrived = np.array([0.0, 0.1, 0.2, 9.0]), np.array([1.3, 1.6, 1.9, 10.3])
    handout, lag, each = client_times(handed, arrived, np.array([]), 4)
    assert handout.value == pytest.approx(0.1)
    assert each.value == pytest.approx(0.3)
    assert lag.value == pytest.approx(1.0)
    # Two requests of four that are asked for again meanwhile are a quarter of the work.
    _, _, each = client_times(handed, arrived, np.array([1.4, 1.8]), 4)
    assert each.value == pytest.approx(0.3 / 1.25)


def test_a_client_shares_its_time():
    job_ = world(lengths=(4,))
    done: list[float] = []
    client = Client(job_.after, lambda: job_.now)
    client.work(0.2, lambda: done.append(job_.now))
    job_.run_for(0.1)
    client.work(0.2, lambda: done.append(job_.now))
    job_.run_for(1.0)
    client.work(0.2, lambda: done.append(job_.now))
    job_.run_for(1.0)
    assert done == pytest.approx([0.3, 0.4, 1.3])


def test_a_simulated_burst_arrives_spread_out():
    job_ = world(lengths=(4,), costs={"submit_s": 1.0, "submit_each_s": 0.3})
    ended: list[float] = []
    job_.on_group = lambda _: ended.append(job_.now)
    for _ in range(3):
        job_.submit_group()
    job_.run_for(9.0)
    job_.submit_group()
    job_.run_for(9.0)
    # Handed over at once, three share the client's time to the end.
    assert ended == pytest.approx([5.9, 5.9, 5.9, 14.3])


def test_the_rollouter_hands_out_one_prompt_after_the_other():
    job_ = world(lengths=(4,), costs={"handout_s": 0.5}, rollout_devices=1, mini_batch=4)
    ended: list[float] = []
    rollouter = Rollouter(job_)
    job_.on_group = lambda _: ended.append(job_.now)
    rollouter.process()
    job_.run_for(20.0)
    assert ended == pytest.approx([4.0, 4.5, 5.0, 5.5])


def test_where_each_request_is_a_task_a_prompt_is_all_of_its_requests():
    handed, arrived = np.zeros(4), np.array([0.5, 0.6, 0.7, 0.8])
    _, lag, each = client_times(handed, arrived, np.array([]), 4, 1 / 4)
    assert each.value == pytest.approx(0.4)
    assert lag.value == pytest.approx(0.4)


def test_the_first_validation_takes_longer_only_from_the_start_of_a_run():
    calibration = job(validation_interval=1, costs={"validation_first_s": 10.0})
    runs = [
        simulate_run(calibration, calibration.knobs, 0, 3, from_start=from_start).validation_s
        for from_start in (True, False)
    ]
    assert runs[0] - runs[1] == pytest.approx(10.0)
