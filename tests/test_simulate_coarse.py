"""Calibration from metrics alone: coarser, and it says so."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

import rlinsight
from rlinsight.analyzers.simulate import Calibration, simulate
from rlinsight.analyzers.simulate.calibration import Uncertainty
from rlinsight.analyzers.simulate.coarse import calibrate_metrics
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.predict import simulate_run
from rlinsight.errors import TraceError

S = 1_000_000_000


def logged(**values: float) -> pl.DataFrame:
    return pl.DataFrame({"step": 1, "key": list(values), "value": list(values.values())})


def test_metrics_alone_give_a_coarser_calibration():
    metrics = logged(
        **{
            "response_length/mean": 500.0,
            "response_length/max": 2000.0,
            "prompt_length/mean": 100.0,
            "timing_s/gen": 40.0,
            "timing_s/update_actor": 20.0,
            "timing_s/update_weights": 3.0,
        }
    )
    knobs = Knobs(
        mode="sync", train_batch=16, mini_batch=16, group_size=8, max_response_length=4096
    )
    calibration = calibrate_metrics(metrics, knobs, "run")
    assert calibration.source == "metrics"
    assert "metrics only" in calibration.notes[0]
    assert calibration.lengths.mean == pytest.approx(500, rel=0.15)
    found = simulate(calibration)
    assert found.outside[-1].about == "calibration"
    # 40 s of generation, 20 s of training, 3 s of sync.
    assert found.step_s.value == pytest.approx(63, rel=0.15)


def test_steps_that_hardly_wait_count_as_much_as_those_that_do_and_the_start_up_does_not():
    """Two batches are generated at once: the trainer waits 20 s for one and not for the other."""
    usual = {"response_length/mean": 500.0, "timing_s/update_actor": 20.0}
    steps = [
        logged(**usual, **{"timing_s/gen": wait}).with_columns(step=pl.lit(step))
        for step, wait in enumerate((90.0, 0.0, 20.0, 0.0, 20.0), start=1)
    ]
    calibration = calibrate_metrics(pl.concat(steps), Knobs(mode="sync"), "run")
    assert simulate(calibration).step_s.value == pytest.approx(10 + 20, rel=0.15)


@pytest.mark.parametrize("prefix", ["", "timing_s/"], ids=["once", "twice, as fully_async"])
def test_the_sync_of_fully_async_is_found_in_its_metrics(prefix):
    metrics = logged(
        **{
            "response_length/mean": 500.0, "timing_s/gen": 40.0, "timing_s/update_actor": 20.0,
            f"timing_s/{prefix}param_sync": 3.0, "timing_s/save_checkpoint": 9.0,
        }
    )  # fmt: skip
    knobs = Knobs(mode="fully_async", rollout_devices=1)
    calibration = calibrate_metrics(metrics, knobs, "run")
    assert calibration.costs.sync_s == 3.0
    assert not any("is logged" in note for note in calibration.notes)


def test_the_switches_of_separate_async_are_found_in_its_metrics():
    metrics = logged(
        **{
            "response_length/mean": 500.0, "timing_s/gen": 40.0, "timing_s/update_actor": 20.0,
            "timing_s/switch_to_rollout": 4.0, "timing_s/switch_to_trainer": 1.0,
        }
    )  # fmt: skip
    knobs = Knobs(mode="separate_async", rollout_devices=1)
    costs = calibrate_metrics(metrics, knobs, "run").costs
    assert (costs.switch_to_rollout_s, costs.switch_to_trainer_s) == (4.0, 1.0)


@pytest.mark.parametrize(
    ("mode", "key"),
    [
        ("sync", "timing_s/testing"),
        ("separate_async", "timing_s/testing"),
        ("fully_async", "rollouter/validate_time"),
    ],
)
def test_a_validation_takes_as_long_as_its_metric_says(mode, key):
    values = {
        "response_length/mean": 50.0, "timing_s/gen": 20.0, "timing_s/update_actor": 20.0, key: 60.0
    }  # fmt: skip
    rollout = 0 if mode == "sync" else 1
    knobs = Knobs(mode=mode, rollout_devices=rollout, validation_interval=2)
    account = simulate_run(calibrate_metrics(logged(**values), knobs, "run"), knobs, 0, 6)
    assert account.validations == 3
    assert account.validation_s / 3 == pytest.approx(60, rel=0.35)  # known to 15 %, one draw
    del values[key]
    account = simulate_run(calibrate_metrics(logged(**values), knobs, "run"), knobs, 0, 6)
    assert account.validations == 0


def test_waiting_for_lent_replicas_is_waiting_too():
    values = {"response_length/mean": 500.0, "timing_s/gen": 10.0, "timing_s/update_actor": 20.0}
    knobs = Knobs(mode="separate_async", rollout_devices=1)
    alone = calibrate_metrics(logged(**values), knobs, "run").decode.base_s
    lent = calibrate_metrics(logged(**values, **{"timing_s/switch_wait": 30.0}), knobs, "run")
    assert lent.decode.base_s > 1.3 * alone  # 60 s a step instead of 30 s


@pytest.mark.parametrize(
    ("settings", "wait_s"),
    [
        ({"mode": "sync"}, 40.0),
        ({"mode": "colocate_async"}, 40.0),
        ({"mode": "separate_async", "rollout_devices": 2}, 10.0),
        ({"mode": "fully_async", "rollout_devices": 2, "staleness_threshold": 0.0}, 30.0),
        ({"mode": "fully_async", "rollout_devices": 2, "staleness_threshold": 0.5}, 30.0),
    ],
)
def test_a_run_of_metrics_alone_waits_in_its_simulation_as_long_as_was_logged(settings, wait_s):
    """What speed that is depends on the mode and the quota: 8 slots or 32 may be in use."""
    knobs = Knobs(**{"train_batch": 16, "mini_batch": 16, "group_size": 4, "max_num_seqs": 16,
                     **settings})  # fmt: skip
    metrics = logged(
        **{
            "response_length/mean": 200.0, "response_length/max": 800.0, "timing_s/gen": wait_s,
            "timing_s/update_actor": 40.0, "timing_s/update_weights": 1.0,
        }
    )  # fmt: skip
    calibration = replace(calibrate_metrics(metrics, knobs, "run"), uncertainty=Uncertainty())
    found = simulate(replace(calibration, fits=()), seeds=(1, 2, 3), versions=20)
    waits = found.trainer_wait_share.value * found.step_s.value
    # A version is a step here; the driver takes no time, so that little is outside of steps.
    assert waits == pytest.approx(
        wait_s, rel=0.15, abs=3.0
    )  # of other seeds than the speed was found with


def test_no_wait_at_all_is_a_speed_that_is_hardly_waited_for():
    knobs = Knobs(mode="fully_async", rollout_devices=2, staleness_threshold=0.5, group_size=4)
    metrics = logged(
        **{"response_length/mean": 200.0, "timing_s/gen": 0.0, "timing_s/update_actor": 40.0}
    )
    found = simulate(calibrate_metrics(metrics, knobs, "run"), seeds=(1, 2, 3))
    assert found.trainer_wait_share.value < 0.1


def test_metrics_without_lengths_cannot_be_used():
    with pytest.raises(TraceError, match="found no `response_length/mean`"):
        calibrate_metrics(logged(**{"timing_s/gen": 1.0}), Knobs(mode="sync"), None)


def test_a_trace_of_metrics_alone_says_so(tmp_path):
    config = {
        "data": {"train_batch_size": 16, "max_response_length": 4096},
        "actor_rollout_ref": {
            "actor": {"ppo_mini_batch_size": 16},
            "rollout": {"n": 8, "max_num_seqs": 256, "tensor_model_parallel_size": 1},
        },
        "trainer": {"nnodes": 1, "n_gpus_per_node": 8},
    }
    with rlinsight.TraceWriter(tmp_path / "t", mode="sync", config=config) as writer:
        for step in range(1, 5):
            for key, value in (("response_length/mean", 500.0), ("timing_s/gen", 40.0),
                               ("timing_s/update_actor", 20.0)):  # fmt: skip
                writer.metric(key, value, step=step, ts_ns=step * S)
    calibration = Calibration.from_trace(rlinsight.open(tmp_path / "t"))
    assert calibration.source == "metrics"
    assert calibration.knobs.trainer_devices == 8
    assert simulate(calibration, versions=6).tokens_per_s.value > 0
