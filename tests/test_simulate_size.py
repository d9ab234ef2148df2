"""What is too large to simulate is refused at once, in one sentence; the rest is not."""

from __future__ import annotations

import time
from math import ceil, inf
from pathlib import Path

import pytest
from simulated import job
from typer.testing import CliRunner

from rlinsight.analyzers.advise import Case
from rlinsight.analyzers.simulate import Calibration, predict_change, simulate, sweep
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.predict import simulate_run
from rlinsight.analyzers.simulate.size import (
    IN_FLIGHT,
    PAGE_STEPS,
    POINTS,
    REPLICAS,
    SLOTS,
    STEPS,
    check_points,
    size_of,
)
from rlinsight.cli import app
from rlinsight.errors import ConfigError, RlinsightError
from rlinsight.webapp import whatif

ROOT = Path(__file__).parent.parent
HUGE = 10**9
#: A refusal that takes longer has begun to simulate.
AT_ONCE_S = 5.0


def refused(calibration: Calibration, changes: dict[str, object]) -> str:
    start = time.process_time()
    with pytest.raises(RlinsightError) as caught:
        predict_change(calibration, changes)
    assert time.process_time() - start < AT_ONCE_S
    return str(caught.value)


def test_the_size_of_a_run_followed_by_hand():
    two = {"trainer_devices": 2, "group_size": 4, "mini_batch": 8, "train_batch": 8}
    calibration = job("sync", **two)
    size = size_of(calibration, calibration.knobs, 10)
    assert (size.replicas, size.in_flight) == (2, 32)
    assert size.steps == pytest.approx(11 * 32 + 10 * 32 + 0.06 * 2 * 88)


@pytest.mark.parametrize(
    ("mode", "change", "says"),
    [
        ("fully_async", {"rollout_replicas": HUGE}, f"at most {REPLICAS:,} replicas"),
        ("fully_async", {"rollout_devices": HUGE}, "lower `trainer_devices` or `rollout_devices`"),
        ("fully_async", {"max_num_seqs": HUGE}, f"at most {SLOTS:,} responses of a replica"),
        ("fully_async", {"sync_step": HUGE}, f"at most {STEPS:,} simulation steps"),
        ("fully_async", {"require_batches": HUGE}, "simulation steps"),
        ("fully_async", {"staleness_threshold": 1e300}, "steps"),
        ("fully_async", {"group_size": HUGE}, f"at most {IN_FLIGHT:,} responses at once"),
        ("fully_async", {"ppo_epochs": HUGE}, "steps"),
        ("fully_async", {"validation_samples": HUGE, "validation_interval": 1}, "steps"),
        ("fully_async", {"concurrent_samples": HUGE, "staleness_threshold": HUGE}, "at once"),
        ("sync", {"trainer_devices": HUGE}, "replicas"),
        ("sync", {"train_batch": HUGE}, "lower `train_batch` or `group_size`"),
        ("colocate_async", {"warm_up_batches": HUGE}, "`warm_up_batches`"),
        ("separate_async", {"mini_batch": HUGE}, "responses at once"),
        ("separate_async", {"sync_step": HUGE}, "responses at once"),
    ],
)
def test_an_absurd_size_is_refused_at_once(mode, change, says):
    message = refused(job(mode, costs={"validation_requests": 4}), change)
    assert message.startswith("expected ")
    assert says in message
    assert ", found " in message
    assert ";" in message, "what to do"


@pytest.mark.parametrize("change", [{"concurrent_samples": HUGE}, {"token_budget": HUGE}])
def test_a_large_number_that_costs_nothing_is_simulated(change):
    assert predict_change(job(), change, versions=4).after.tokens_per_s.value


def test_a_run_that_takes_too_long_between_two_completions_is_refused():
    endless = {"max_response_length": 10**12, "length_scale": 1e10}
    assert "without one completed prompt" in refused(job(), endless)
    assert "without one completed prompt" in refused(job("sync"), endless)


def test_both_sides_of_the_bounds():
    calibration = job()
    assert predict_change(calibration, {"max_num_seqs": SLOTS}, seeds=[0], versions=2)
    refused(calibration, {"max_num_seqs": SLOTS + 1})
    check_points(POINTS)
    with pytest.raises(ConfigError, match=f"at most {POINTS:,} settings, found {POINTS + 1:,}"):
        check_points(POINTS + 1)
    once = size_of(calibration, calibration.knobs, 5).steps
    predict_change(calibration, {}, seeds=[0], versions=2, limit=ceil(2 * once))
    with pytest.raises(ConfigError, match="2 settings x 1 seeds x up to 5 versions"):
        predict_change(calibration, {}, seeds=[0], versions=2, limit=ceil(2 * once) - 1)


def test_seeds_and_versions_count():
    with pytest.raises(ConfigError, match="1,000,000,000 seeds"):
        simulate(job(), seeds=range(HUGE))
    with pytest.raises(ConfigError, match="1,000,000,000 versions"):
        simulate_run(job(), job().knobs, 0, HUGE)


def test_a_sweep_of_too_many_settings_is_refused_before_they_are_listed():
    values = {"sync_step": range(1, 10**6), "mini_batch": range(1, 10**6)}
    with pytest.raises(ConfigError, match="found 999,998,000,001; give fewer values"):
        sweep(job(), values)


def test_a_sweep_of_many_large_settings_is_refused_as_a_whole():
    with pytest.raises(ConfigError, match=r"\(900 settings x 5 seeds"):
        sweep(job(), {"mini_batch": range(100, 1000)}, versions=30)


def test_a_setting_of_a_sweep_that_is_too_large_keeps_its_reason():
    found = sweep(job(), {"sync_step": [1, HUGE]}, seeds=[0], versions=3)
    good, bad = found.points
    assert good.prediction is not None
    assert bad.prediction is None
    assert "simulation steps" in (bad.reason or "")


def test_text_where_a_number_belongs_is_not_repeated():
    message = refused(job(), {"rollout_replicas": "x", "tensor_parallel": HUGE})
    assert "`rollout_devices` to be a whole number of 64 bits, found 'x'" in message
    message = refused(job("separate_async"), {"mini_batch": "x", "sync_step": HUGE})
    assert "`mini_batch` to be a whole number of 64 bits, found 'x'" in message


@pytest.mark.parametrize(
    ("mode", "change", "says"),
    [
        ("fully_async", {"token_budget": 0}, "`token_budget` of at least 1"),
        ("fully_async", {"length_scale": -1.0}, "`length_scale` above 0"),
        ("fully_async", {"length_tail": 1e9}, "`length_tail` of 0 to 50"),
        ("fully_async", {"length_tail": -1.0}, "`length_tail` of 0 to 50"),
        ("fully_async", {"length_scale": inf}, "finite"),
        ("separate_async", {"max_off_policy": 0}, "`max_off_policy` of at least 1"),
        ("separate_async", {"warm_up_batches": -1}, "`warm_up_batches` of at least 0"),
    ],
)
def test_a_value_that_the_model_has_no_meaning_for_is_refused(mode, change, says):
    assert says in refused(job(mode), change)


def test_no_interval_is_written_as_verl_does():
    knobs = job(validation_interval=2).knobs
    assert knobs.changed({"trainer.test_freq": -1}).validation_interval is None
    assert knobs.changed({"validation_interval": 0}).validation_interval is None


def test_waiting_for_the_oldest_ends_once_nothing_runs():
    calibration = job("separate_async", max_off_policy=1, off_policy_strategy="wait")
    assert simulate(calibration, seeds=[0], versions=3).tokens_per_s.value


def test_large_groups_are_drawn_a_few_at_a_time(monkeypatch):
    calibration = job(group_size=8192)
    drawn = []
    draw = LengthModel.draw

    def spy(self, rng, count, size, **settings):
        drawn.append(count * size)
        return draw(self, rng, count, size, **settings)

    monkeypatch.setattr(LengthModel, "draw", spy)
    simulate_run(calibration, calibration.knobs, 0, 1)
    assert max(drawn) == 1 << 22


# ---- from outside --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "rollout_replicas=1000000000"],
        ["--set", "async_training.trigger_parameter_sync_step=1000000000"],
        ["--sweep", "mini_batch=" + ",".join(map(str, range(1, POINTS + 2)))],
        ["--versions", "1000000", "--seeds", "1000"],
    ],
)
def test_the_command_ends_with_one_sentence(tmp_path, arguments):
    saved = tmp_path / "calibration.json"
    saved.write_text(job(costs={"poll_s": 2.0}).to_json())
    result = CliRunner().invoke(app, ["whatif", str(saved), "--seeds", "2", *arguments])
    assert isinstance(result.exception, RlinsightError)
    assert result.exception.exit_code == 2
    assert str(result.exception).count("\n") == 0


@pytest.mark.parametrize("option", ["--seeds", "--versions"])
def test_counts_beyond_any_use_are_wrong_usage(tmp_path, option):
    saved = tmp_path / "calibration.json"
    saved.write_text(job().to_json())
    result = CliRunner().invoke(app, ["whatif", str(saved), option, str(10**30)])
    assert result.exit_code == 2


def test_text_that_nests_too_deep_is_text(tmp_path):
    saved = tmp_path / "calibration.json"
    saved.write_text(job().to_json())
    result = CliRunner().invoke(app, ["whatif", str(saved), "--set", "mini_batch=" + "[" * 10**5])
    assert isinstance(result.exception, ConfigError)


def test_a_page_refuses_earlier():
    calibration = job(validation_interval=1)
    between = {"mini_batch": 100_000}
    size = 5 * size_of(calibration, calibration.knobs.changed(between), 11).steps
    assert PAGE_STEPS < size < STEPS
    with pytest.raises(ConfigError, match=f"at most {PAGE_STEPS:,} simulation steps"):
        whatif.effect(calibration, between)


def test_advice_on_a_run_too_large_predicts_nothing():
    # What `tune` and `advise` ask: a rule then says that nothing is predicted.
    case = Case(report=None, config={}, calibration=job())  # type: ignore[arg-type]
    assert case.effect({"sync_step": HUGE}) is None


def test_the_bounds_are_documented():
    text = (ROOT / "docs" / "simulator.md").read_text()
    for bound in (STEPS, PAGE_STEPS, POINTS, IN_FLIGHT, REPLICAS, SLOTS):
        assert f"{bound:,}" in text
