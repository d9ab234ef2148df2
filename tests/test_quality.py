"""Quality guard: hand-computed figures, and None wherever nothing was recorded."""

from __future__ import annotations

from dataclasses import fields

import polars as pl
import pytest
from timelines import S, Timeline

from rlinsight.analyzers.quality.guard import quality
from rlinsight.analyzers.quality.step_axis import on_step_axis
from rlinsight.analyzers.quality.trends import trend_of, volatility


def over_steps(values: list[float]) -> pl.DataFrame:
    return pl.DataFrame({"step": range(len(values)), "value": [float(v) for v in values]})


class Guarded(Timeline):
    def log(self, key: str, *values: float) -> None:
        for step, value in enumerate(values, 1):
            self.writer.metric(key, value, step=step, ts_ns=step * S)

    def rewarded(self, group: str, *rewards: float, step: int = 1, **columns) -> None:
        for i, reward in enumerate(rewards):
            uid = f"{group}/{step}/{i}"
            self.trained(uid, step, (1, 1), step, group_uid=group, reward=reward, **columns)

    def guard(self):
        trace = self.open()
        return quality(trace.samples.collect(), trace.metrics.collect())


@pytest.fixture
def t(tmp_path):
    return Guarded(tmp_path / "t")


def test_nothing_recorded_is_none_everywhere(t):
    found = t.guard()
    assert found.accuracy == ()
    rest = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "accuracy"}
    assert rest == dict.fromkeys(rest)


def test_volatility_is_what_remains_after_the_trend():
    assert volatility(over_steps([0, 2, 2, 4, 4, 6, 6, 8, 8, 10])) == pytest.approx(0.527, abs=1e-3)
    assert volatility(over_steps(list(range(20)))) == pytest.approx(0.0, abs=1e-12)
    assert volatility(over_steps([1, 2, 3])) is None


def test_a_trend_is_told_from_noise():
    rising = trend_of(over_steps([0.1 * i for i in range(10)]))
    assert (rising.per_step, rising.significant) == (pytest.approx(0.1), True)
    flat = trend_of(over_steps([0.5, 0.4, 0.6, 0.5, 0.5, 0.4, 0.6, 0.5]))
    assert flat.significant is False
    assert trend_of(over_steps([1, 2])).per_step is None


def test_rewards_come_from_samples_before_metrics(t):
    t.log("critic/rewards/mean", 9, 9, 9)
    t.rewarded("g1", 0.0, 1.0, step=1)
    t.rewarded("g2", 1.0, 1.0, step=2)
    found = t.guard()
    assert (found.reward_source, found.reward.first, found.reward.last) == ("samples", 0.5, 1.0)


def test_without_samples_the_metric_speaks_and_says_so(t):
    t.log("critic/rewards/mean", 0.2, 0.4, float("nan"))
    found = t.guard()
    assert (found.reward_source, found.reward.last) == ("critic/rewards/mean", 0.4)


def test_zero_variance_groups_of_the_worked_example(t):
    for group, rewards in (("a", (1, 1)), ("b", (0, 1)), ("c", (0, 0)), ("d", (1,))):
        t.rewarded(group, *rewards)
    found = t.guard()
    assert (found.groups, found.zero_variance_share) == (3, pytest.approx(2 / 3))


def test_partial_and_invalid_ratios(t):
    t.trained("a", 1, (1, 1), 1, version_start=1, version_end=1)
    t.trained("b", 1, (1, 1), 1, version_start=1, version_end=2)
    t.trained("c", 1, (1, 1), 1)
    t.writer.sample(sample_uid="d", fate="aborted")
    found = t.guard()
    assert found.partial_ratio == pytest.approx(0.5)
    assert found.invalid_ratio == pytest.approx(0.25)
    assert found.framework_partial_ratio is None


@pytest.mark.parametrize(
    ("kl", "level"), [(3e-4, "healthy"), (-3e-4, "healthy"), (0.02, "raised"), (0.4, "broken")]
)
def test_kl_against_3e_4(t, kl, level):
    t.log("rollout_corr/kl", kl, kl, kl)
    found = t.guard().kl
    assert found.level == level
    assert found.times_healthy == pytest.approx(abs(kl) / 3e-4)


def test_an_effective_sample_size_that_collapses_on_long_responses(t):
    sizes = [0.95, 0.9, 0.8, 0.5, 0.2, 0.1, 0.05]
    t.log("rollout_corr/rollout_is_eff_sample_size", *sizes)
    t.log("response_length/mean", *(1000 * i for i in range(1, 8)))
    found = t.guard().effective_sample_size
    assert found.collapsed
    assert found.length_correlation == pytest.approx(-1)
    assert (found.lowest, found.last) == (0.05, 0.05)


def test_accuracy_tells_what_was_lost_since_the_best(t):
    t.log("val-core/math/acc/mean@1", 0.2, 0.6, 0.5)
    (found,) = t.guard().accuracy
    assert (found.first, found.best, found.best_step, found.points) == (0.2, 0.6, 2, 3)
    assert found.below_best == pytest.approx(0.1)


def test_the_invalid_ratio_is_of_what_is_settled(t):
    for i, fate in enumerate(["aborted"] * 2 + ["trained"] * 18 + ["unconsumed"] * 60):
        t.writer.sample(sample_uid=f"s{i}", fate=fate)
    assert t.guard().invalid_ratio == pytest.approx(0.1)


def versions_of_four_steps(t: Timeline, versions: int) -> None:
    for step in range(1, 4 * versions + 1):
        t.step(step, step, step + 1, param_version=(step - 1) // 4)
    for version in range(versions + 1):
        t.writer.metric("val-core/acc", 0.1 * version, step=version, ts_ns=(version + 1) * 4 * S)


@pytest.mark.parametrize(
    ("mode", "steps"), [("fully_async", [0, 4, 8]), ("separate_async", [0, 1, 2])]
)
def test_what_is_logged_under_a_version_has_its_place_among_the_steps(tmp_path, mode, steps):
    t = Timeline(tmp_path / "t", mode=mode)
    versions_of_four_steps(t, 2)
    trace = t.open()
    driver = trace.spans.filter(pl.col("activity") == "step").collect()
    placed, axis = on_step_axis(trace.metrics.collect(), driver, mode, {})
    assert (placed["step"].to_list(), axis) == (steps, "training step")


def test_a_resumed_run_goes_on_where_it_was():
    """Resumed at step 401 on version 100; version 99 is older than all that was recorded."""
    driver = pl.DataFrame({"step": [401, 402, 403, 404], "param_version": [100, 100, 101, 101]})
    logged = pl.DataFrame({"key": "acc", "step": [99, 100, 101, 102, None], "value": 0.5})
    placed, _ = on_step_axis(logged, driver, "fully_async", {})
    assert sorted(placed["step"].drop_nulls()) == [400, 402, 404]
    assert placed["step"].null_count() == 2


@pytest.mark.parametrize(
    ("config", "steps", "axis"),
    [
        ({"async_training": {"trigger_parameter_sync_step": 4}}, [0, 4, 8], "training step"),
        ({}, [0, 1, 2], "parameter version"),
    ],
)
def test_without_recorded_steps_the_configuration_tells_or_nothing_does(config, steps, axis):
    logged = pl.DataFrame({"key": "val-core/acc", "step": [0, 1, 2], "value": 0.5})
    none = pl.DataFrame(schema={"step": pl.Int32, "param_version": pl.Int32})
    placed, over = on_step_axis(logged, none, "fully_async", config)
    assert (placed["step"].to_list(), over) == (steps, axis)
