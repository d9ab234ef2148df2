"""Predictions, effects, sweeps, and what a prediction admits that it assumes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from simulated import job

import rlinsight
from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate import Calibration, Knobs, predict_change, simulate, sweep
from rlinsight.analyzers.simulate.calibration import Uncertainty
from rlinsight.analyzers.simulate.fits import Fit
from rlinsight.analyzers.simulate.outside import (
    _PER_DOUBLING,
    leaps,
    leaps_of_change,
    widening,
)
from rlinsight.analyzers.simulate.reproduce import recorded, reproduce, whole_versions
from rlinsight.analyzers.simulate.validation import Row, check_run, differences, summarize
from rlinsight.errors import ConfigError, TraceError

SAMPLES = Path(__file__).parent.parent / "sample_traces"

#: The recorded runs are of a few minutes on two shared cores: relative, and as a share of time.
RATE_BOUND, SHARE_BOUND = 0.12, 0.08


@pytest.fixture(scope="module", params=["sync", "colocate_async", "separate_async", "fully_async"])
def reproduced(request):
    trace = rlinsight.open(SAMPLES / request.param)
    report = trace.analyze()
    _, compared = reproduce(Calibration.from_report(trace, report), report, seeds=range(10))
    return {row.figure: row for row in compared}


def test_a_recorded_run_is_reproduced_by_its_own_setting(reproduced):
    for name in ("tokens_per_s_per_device", "samples_per_s", "step_s"):
        assert abs(reproduced[name].error) < RATE_BOUND, name
    for name in ("trainer_idle_ratio", "trainer_wait_share", "rollouter_idle_ratio"):
        error = reproduced[name].error
        assert error is None or abs(error) < SHARE_BOUND, name
    assert abs(reproduced["mean_lag_versions"].error) < 0.1


def test_the_recorded_throughput_lies_in_the_predicted_interval(reproduced):
    row = reproduced["tokens_per_s_per_device"]
    assert row.simulated.low < row.recorded < row.simulated.high


def test_a_resumed_run_is_not_simulated_from_its_first_version():
    """Version 1,000,000 was never seen by this run, and no question is too large because of it."""
    trace = rlinsight.open(SAMPLES / "fully_async")
    report = trace.analyze()
    calibration = Calibration.from_report(trace, report)
    first, last = report.window.versions
    shifted = tuple(1_000_000 + version for version in (first, last))
    later = replace(report, window=replace(report.window, versions=shifted))
    prediction, _ = reproduce(calibration, later, seeds=(0, 1))
    again, _ = reproduce(calibration, report, seeds=(0, 1))
    assert prediction.versions == again.versions
    same = pytest.approx(again.tokens_per_s.value, rel=0.05)
    assert prediction.tokens_per_s.value == same


def test_the_same_seeds_give_the_same_prediction():
    calibration = job("fully_async", lengths=(1, 5, 9), staleness_threshold=0.5)
    again = simulate(calibration, versions=6)
    assert simulate(calibration, versions=6) == again
    assert simulate(calibration, seeds=(7, 8, 9), versions=6) != again


def test_an_interval_needs_two_seeds():
    one = simulate(job(), seeds=(0,), versions=6).tokens_per_s
    assert (one.low, one.high) == (None, None)


def test_uncertain_speeds_widen_the_interval():
    calibration = job("sync", lengths=(7,))
    sure = simulate(calibration, versions=6).tokens_per_s
    unsure = replace(calibration, uncertainty=Uncertainty(training=0.2))
    doubtful = simulate(unsure, versions=6).tokens_per_s
    assert sure.low == sure.high
    assert doubtful.low < sure.value < doubtful.high


def test_an_effect_is_paired():
    # Lengths vary a lot, but with the same random numbers twice the training time is exact.
    calibration = job("sync", lengths=(1, 5, 30), train_s=3.0)
    same = predict_change(calibration, {"length_tail": 1.0}, versions=6)
    assert same.tokens_per_s == Estimate(0.0, 0.0, 0.0)
    assert same.before.tokens_per_s.low < same.before.tokens_per_s.high


def test_the_two_objectives_can_disagree():
    # Four times the replicas for a trainer that is already busy: a bit faster, far less per device.
    calibration = job(lengths=(4, 8), max_num_seqs=1, train_s=4.0, staleness_threshold=0.5)
    effect = predict_change(calibration, {"rollout_replicas": 4}, versions=8)
    assert effect.tokens_per_s.value > 0
    assert effect.tokens_per_s_per_device.value < 0
    assert effect.after.knobs.devices == 5


def test_a_sweep_marks_what_no_other_setting_beats():
    calibration = job(lengths=(2, 6), max_num_seqs=2)
    found = sweep(calibration, {"staleness_threshold": [0.0, 1.0], "mini_batch": [2, 4]},
                  seeds=(0, 1), versions=6)  # fmt: skip
    assert [p.changes for p in found.points] == [
        {"staleness_threshold": s, "mini_batch": m} for s in (0.0, 1.0) for m in (2, 4)
    ]
    best = [p for p in found.points if p.best]
    assert best
    for point in found.points:
        if not point.best:
            assert any(
                b.prediction.tokens_per_s.value >= point.prediction.tokens_per_s.value
                and b.prediction.mean_lag_versions.value <= point.prediction.mean_lag_versions.value
                for b in best
            )


def test_a_refused_setting_stays_in_the_sweep_with_its_reason():
    found = sweep(job(), {"rollout_devices": [0, 1]}, seeds=(0,), versions=4)
    refused, fine = found.points
    assert refused.prediction is None
    assert "at least one replica" in refused.reason
    assert fine.prediction is not None


def test_an_unknown_knob_of_a_sweep_is_refused():
    with pytest.raises(ConfigError, match="found `bogus`"):
        sweep(job(), {"bogus": [1]})


def test_a_sweep_in_processes_finds_the_same():
    calibration = job(lengths=(2, 6))
    values = {"staleness_threshold": [0.0, 0.5]}
    settings = {"seeds": (0,), "versions": 4}
    assert sweep(calibration, values, processes=2, **settings) == sweep(
        calibration, values, processes=1, **settings
    )


# ---- outside of what was measured ----------------------------------------------------------


def leans_on(change: dict, **settings) -> set[str]:
    calibration = job("fully_async", **{"rollout_devices": 2, "trainer_devices": 2, **settings})
    calibration = replace(
        calibration,
        decode=replace(calibration.decode, max_running=10.0),
        training=replace(calibration.training, tokens=(8.0, 8.0)),
    )
    return {leap.about for leap in leaps(calibration, calibration.knobs.changed(change))}


def test_the_run_itself_leans_on_nothing():
    assert leans_on({}) == set()


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"trainer_devices": 4}, "trainer_devices"),
        ({"tensor_parallel": 2}, "tensor_parallel"),
        ({"staleness_threshold": 20.0, "concurrent_samples": 64}, "concurrency"),
        ({"mini_batch": 8}, "update_tokens"),
        ({"token_budget": 2}, "micro_batch_cost"),
        ({"ppo_epochs": 2}, "ppo_epochs"),
        ({"validation_interval": 2}, "validation_interval"),
        ({"checkpoint_interval": 2}, "checkpoint_interval"),
        ({"trainer_validates": True}, "hybrid_replicas"),
    ],
)
def test_what_a_change_leans_on_is_named(change, about):
    settings = {"costs": {"validation_requests": 0}} if about == "validation_interval" else {}
    assert about in leans_on(change, **settings)


@pytest.mark.parametrize(("error", "about"), [(0.1, "concurrency"), (0.6, "concurrency_slope")])
def test_an_unknown_slope_is_a_larger_leap(error, about):
    calibration = job("fully_async", rollout_devices=2)
    fit = Fit("decode.per_running_s", 1.0, 1.0, error, 9)
    calibration = replace(
        calibration, decode=replace(calibration.decode, max_running=2.0), fits=(fit,)
    )
    (found,) = leaps(calibration, calibration.knobs.changed({"staleness_threshold": 4.0}))
    assert found.about == about
    # Two replicas of at most five responses; two were seen.
    assert found.allowance == pytest.approx(_PER_DOUBLING[about] * math.log2(5 / 2))


@pytest.mark.parametrize(("error", "about"), [(0.1, "token_budget"), (0.6, "micro_batch_cost")])
def test_a_known_cost_of_a_micro_batch_is_a_smaller_leap(error, about):
    fit = Fit("training.per_micro_batch_s", 1.0, 1.0, error, 9)
    calibration = replace(job("fully_async"), fits=(fit,))
    (found,) = leaps(calibration, calibration.knobs.changed({"token_budget": 2}))
    assert (found.about, found.allowance) == (about, _PER_DOUBLING[about])


@pytest.mark.parametrize(("interval", "doubted"), [(2, False), (1, True), (None, False)])
def test_a_cost_that_both_leave_out_says_nothing_of_their_difference(interval, doubted):
    calibration = job("fully_async", validation_interval=2, costs={"validation_requests": 0})
    before = calibration.knobs
    after = before.changed({"validation_interval": interval, "ppo_epochs": 2})
    about = {leap.about for leap in leaps_of_change(calibration, before, after)}
    assert about == {"ppo_epochs"} | ({"validation_interval"} if doubted else set())


def test_inside_of_what_was_seen_nothing_is_assumed():
    assert leans_on({"staleness_threshold": 0.5, "sync_step": 2, "partial_rollout": False}) == set()


def test_a_higher_maximum_leans_on_what_was_cut():
    cut, free = (job("sync", lengths=(10, length)) for length in (1000, 500))
    more = {"max_response_length": 4000}
    assert [leap.about for leap in leaps(cut, cut.knobs.changed(more))] == ["max_response_length"]
    assert leaps(free, free.knobs.changed(more)) == ()


def test_leaning_widens_the_interval():
    calibration = job("fully_async", rollout_devices=2, trainer_devices=2, lengths=(4,))
    effect = predict_change(calibration, {"trainer_devices": 4}, versions=6)
    assert effect.after.widened == pytest.approx(0.08) == widening(effect.after.outside)
    after = effect.after.tokens_per_s
    assert after.high / after.value - 1 == pytest.approx(0.08)


# ---- predictions held against other runs ---------------------------------------------------


def row(recorded: float, predicted: float) -> Row:
    return Row("r", {}, recorded, Estimate(predicted), predicted / recorded - 1, 0.2,
               Estimate(0.25), 0.05, None)  # fmt: skip


def test_errors_and_order_are_summed_up():
    found = summarize([row(100, 110), row(200, 190), row(300, 150)])
    assert found.median_error == pytest.approx(0.1)
    assert found.worst_error == pytest.approx(0.5)
    assert found.worst_wait_error == pytest.approx(0.05)
    assert found.same_order == pytest.approx(2 / 3)


def test_a_run_is_predicted_from_its_setting_alone():
    trace = rlinsight.open(SAMPLES / "fully_async")
    window, warm_up, versions = whole_versions(trace.analyze())
    report = trace.analyze(window=window)
    calibration, measured = Calibration.from_report(trace, report), recorded(report)
    same, other = (
        check_run("run", calibration, measured, knobs, (warm_up, versions), seeds=(0, 1))
        for knobs in (calibration.knobs, calibration.knobs.changed({"staleness_threshold": 0.0}))
    )
    assert other.changes == {"staleness_threshold": 0.0}
    assert other.predicted.value < same.predicted.value
    assert same.throughput == other.throughput == measured.tokens_per_s_per_device
    assert abs(same.throughput_error) < RATE_BOUND


def test_the_last_version_is_left_out():
    report = rlinsight.open(SAMPLES / "fully_async").analyze()
    (start, end), warm_up, versions = whole_versions(report)
    rows = [row for row in report.versions if start <= row.start_ns < end]
    assert len(rows) == versions
    assert rows[0].version == warm_up
    assert any(row.start_ns == end and row.trained_samples for row in report.versions)
    with pytest.raises(TraceError, match="at least 3 whole versions"):
        whole_versions(replace(report, versions=report.versions[:2]))


def test_differences_are_those_of_the_setting():
    old = Knobs(mode="sync")
    assert differences(old, replace(old, group_size=3)) == {"group_size": 3}
    assert not math.isnan(old.length_scale)
