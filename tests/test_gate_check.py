"""The verdicts of a check, on runs of known making."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from gating import TODAY, gate_runs, judged, metric

from rlinsight.analyzers.gate.observation import Observation, Scalar
from rlinsight.analyzers.gate.settings import Acknowledged, MetricSettings
from rlinsight.report.check.words import headline

Kind = gate_runs.Kind
QUIET = Kind(noise=0.01)
THROUGHPUT = {"tokens_per_s_per_device", "samples_per_s", "step_time_s"}


@pytest.fixture(scope="module")
def history() -> list[Observation]:
    return [gate_runs.observation(QUIET, seed) for seed in (1, 2, 3)]


def run(**changes) -> Observation:
    return gate_runs.observation(replace(QUIET, **changes), 9)


def without(observation: Observation, *columns: str) -> Observation:
    kept = {name: c for name, c in observation.windows.items() if name not in columns}
    return replace(observation, windows=kept)


def failed(result) -> set[str]:
    return {m.name for m in result.metrics if m.fails}


# -- pass and fail -------------------------------------------------------------------------


def test_an_equal_run_passes(history):
    result = judged(run(), *history)
    assert (result.verdict, result.exit_code) == ("PASS", 0)
    assert metric(result, "step_time_s").runs == 3


def test_a_slower_phase_fails_and_is_named(history):
    result = judged(run(slow={"update_actor": 1.6}), *history)
    assert (result.verdict, result.exit_code) == ("FAIL", 1)
    assert failed(result) == THROUGHPUT
    leading = result.attribution.leading
    assert (leading.pool, leading.state) == ("trainer", "train.update_actor")
    assert leading.per_token == pytest.approx(0.6, abs=0.1)
    assert result.attribution.pace_ratio == pytest.approx(
        result.attribution.period_ratio / result.attribution.tokens_ratio
    )


def test_a_faster_run_passes_and_is_called_better(history):
    result = judged(run(slow={"update_actor": 0.5}), *history)
    assert result.verdict == "PASS"
    assert {metric(result, name).direction for name in THROUGHPUT} == {"better"}


def test_idle_that_grows_because_the_other_side_is_faster_does_not_fail(history):
    """The trainer waits for a larger share of a shorter step."""
    result = judged(run(slow={"update_actor": 0.5}), *history)
    idle = metric(result, "idle.trainer")
    assert (idle.verdict, idle.gates, result.exit_code) == ("FAIL", False, 0)


def test_a_watched_metric_can_be_made_to_gate(history):
    gated = {"idle.*": MetricSettings(gates=True)}
    result = judged(run(slow={"update_actor": 0.5}), *history, metrics=gated)
    assert (result.verdict, failed(result)) == ("FAIL", {"idle.trainer"})


def test_a_later_pattern_that_says_nothing_of_skipping_skips_still(history):
    chosen = {"weight_sync_s": MetricSettings(skip=True), "*": MetricSettings(relative=0.05)}
    result = judged(run(slow={"weight_sync": 3}), *history, metrics=chosen)
    assert "weight_sync_s" not in {m.name for m in result.metrics}
    again = {**chosen, "weight_*": MetricSettings(skip=False)}
    assert metric(judged(run(), *history, metrics=again), "weight_sync_s").verdict == "PASS"


def test_a_change_within_the_corridor_passes_however_sure(history):
    wide = {name: MetricSettings(relative=0.9) for name in THROUGHPUT}
    assert judged(run(slow={"update_actor": 1.6}), *history, metrics=wide).verdict == "PASS"


def test_a_change_beyond_the_corridor_that_noise_explains_passes():
    noisy = Kind(noise=0.5, length_spread=0.3, steps=8)
    old, new = (gate_runs.observation(noisy, seed) for seed in (5, 6))
    row = metric(judged(new, old), "step_time_s")
    assert abs(row.change) > row.corridor
    assert (row.verdict, row.reason) == (
        "PASS",
        "outside the corridor, but noise alone explains it",
    )
    assert row.detectable > abs(row.change)


def test_either_direction_is_bad_where_asked_for(history):
    strict = {"step_time_s": MetricSettings(better="either")}
    result = judged(run(slow={"update_actor": 0.5}), *history, metrics=strict)
    assert failed(result) == {"step_time_s"}


def test_a_slower_weight_sync_fails_by_itself(history):
    result = judged(run(slow={"weight_sync": 2.0}), *history)
    assert "weight_sync_s" in failed(result)


def test_what_is_skipped_is_not_judged(history):
    result = judged(run(), *history, metrics={"bubble.*": MetricSettings(skip=True)})
    assert not [m for m in result.metrics if m.name.startswith("bubble.")]


# -- the workload --------------------------------------------------------------------------


def test_longer_responses_are_a_drift_and_no_regression(history):
    result = judged(run(longer=1.25), *history)
    step = metric(result, "step_time_s")
    assert step.value > step.raw_reference * 1.1
    assert (result.verdict, result.workload.drifted, result.workload.matchable) == (
        "PASS", True, True,
    )  # fmt: skip
    assert step.explained > 0
    assert "length" in step.matched


def test_a_regression_behind_longer_responses_is_found_all_the_same(history):
    result = judged(run(longer=1.25, slow={"update_actor": 1.6}), *history)
    assert "step_time_s" in failed(result)


def test_shorter_responses_do_not_hide_a_regression(history):
    result = judged(run(longer=0.8, slow={"update_actor": 1.6}), *history)
    step = metric(result, "step_time_s")
    assert step.verdict == "FAIL"


def test_lengths_beyond_those_of_the_baseline_are_not_judged_but_said(history):
    result = judged(run(longer=3.0), *history)
    step = metric(result, "step_time_s")
    assert (step.verdict, result.workload.matchable) == ("INACTIVE", False)
    assert "the workload drifted" in step.reason


#: The syncs of these runs take longer with longer responses.
NO_SYNC = {"weight_sync_s": MetricSettings(skip=True)}


def test_an_equal_lag_is_no_pass_of_a_throughput_that_was_not_compared(history):
    result = judged(run(longer=3.0), *history, metrics=NO_SYNC)
    assert metric(result, "lag_versions").verdict == "PASS"
    assert (result.verdict, result.exit_code) == ("INACTIVE", 0)
    assert "INACTIVE: neither throughput nor step time was compared" in headline(result)


def test_a_check_that_is_not_about_throughput_passes_by_what_it_is_about(history):
    skipped = {**NO_SYNC, **{name: MetricSettings(skip=True) for name in THROUGHPUT}}
    assert judged(run(longer=3.0), *history, metrics=skipped).verdict == "PASS"


# -- error and inactive: never a silent pass ------------------------------------------------


def test_no_history_is_inactive():
    result = judged(run())
    assert (result.verdict, result.exit_code) == ("INACTIVE", 0)
    assert {m.verdict for m in result.metrics} == {"INACTIVE"}


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["tokens"], {"tokens_per_s_per_device"}),
        (["samples"], {"samples_per_s"}),
        (["syncs", "sync_s"], {"weight_sync_s"}),
        (["lag", "lag_known"], {"lag_versions"}),
        (["steps", "step_s"], {"step_time_s"}),
    ],
)
def test_what_the_run_lacks_is_an_error(history, columns, names):
    result = judged(without(run(), *columns), *history)
    assert {m.name for m in result.metrics if m.verdict == "ERROR"} == names
    assert (result.verdict, result.exit_code) == ("ERROR", 2)


def test_what_nobody_has_was_not_compared(history):
    old = [without(past, "tokens") for past in history]
    row = metric(judged(without(run(), "tokens"), *old), "tokens_per_s_per_device")
    assert row.verdict == "INACTIVE"
    assert (
        row.reason == "the trace has no trained sample of known length, and nothing to "
        "compare with has it"
    )


def test_a_setting_of_a_metric_that_nobody_has_is_named(history):
    names = ("step_tims_s", "bubble.trainer.queue_full", "bubble.*", "idel.*", "logged:perf/mfu")
    odd = {name: MetricSettings(relative=0.01) for name in names}
    said = "of the configuration is no metric of this run or its history"
    assert judged(run(), *history, metrics=odd).doubts == (
        f"`step_tims_s` {said}; did you mean `step_time_s`?",
        f"`idel.*` {said}",
        f"`logged:perf/mfu` {said}",
    )


def test_a_run_without_windows_is_an_error(history):
    result = judged(replace(run(), windows={}), *history)
    assert (result.verdict, result.exit_code) == ("ERROR", 2)


def test_too_few_windows_are_an_error(history):
    result = judged(run(steps=4), *history)
    row = metric(result, "step_time_s")
    assert (row.verdict, row.value is not None) == ("ERROR", True)
    assert "found 3" in row.reason


def test_a_regression_outweighs_an_error(history):
    broken = without(run(slow={"update_actor": 1.6}), "syncs", "sync_s")
    assert judged(broken, *history).exit_code == 1


def test_what_the_history_lacks_is_inactive(history):
    old = [without(past, "lag", "lag_known") for past in history]
    assert metric(judged(run(), *old), "lag_versions").verdict == "INACTIVE"


def test_an_unknown_recording_overhead_is_an_error(history):
    lost = replace(run(), scalars={"recording_overhead": Scalar(None, "share", "lower")})
    assert metric(judged(lost, *history), "recording_overhead").verdict == "ERROR"


def test_a_bubble_that_was_not_there_before_took_no_time(history):
    """The ledger is complete: a cause that is absent from it is 0, not unknown."""
    new = run()
    columns = {**new.windows, "rollouter/bubble.queue_full": (1.0,) * new.count}
    row = metric(judged(replace(new, windows=columns), *history), "bubble.rollouter.queue_full")
    assert (row.verdict, row.raw_reference) == ("FAIL", 0)
    gone = metric(judged(new, *history, replace(new, windows=columns)), row.name)
    assert (gone.verdict, gone.value) == ("PASS", 0)


# -- logged metrics ------------------------------------------------------------------------

MFU = "logged:perf/mfu"


def logging(value: float | None, count: int = 12, **changes) -> Observation:
    column = (None,) * count if value is None else (value,) * count
    return replace(run(), logged={"perf/mfu": column}, **changes)


def test_a_logged_metric_is_judged_when_it_is_asked_for():
    asked = {MFU: MetricSettings(relative=0.1, better="higher")}
    result = judged(logging(0.2), logging(0.4), metrics=asked)
    assert metric(result, MFU).verdict == "FAIL"
    assert not [m for m in judged(logging(0.2), logging(0.4)).metrics if m.name == MFU]


def test_a_pattern_asks_for_what_is_there():
    result = judged(logging(0.4), logging(0.4), metrics={"logged:perf/*": MetricSettings()})
    assert metric(result, MFU).verdict == "PASS"


def test_a_logged_metric_that_is_asked_for_and_absent_is_an_error(history):
    result = judged(run(), *history, metrics={MFU: MetricSettings()})
    assert (metric(result, MFU).verdict, result.exit_code) == ("ERROR", 2)


def test_a_logged_nan_is_an_error():
    broken = logging(0.4, not_finite={"perf/mfu": 2})
    row = metric(judged(broken, logging(0.4), metrics={MFU: MetricSettings()}), MFU)
    assert (row.verdict, row.reason) == ("ERROR", "it is not a finite number at 2 steps")


@pytest.mark.parametrize(
    ("column", "value", "name", "why"),
    [
        ("lag", -8.0, "lag_versions", "it is negative, which it cannot be"),
        ("samples", 0.0, "samples_per_s", "nothing was trained in the steady windows"),
        ("step_s", 0.0, "step_time_s", "nothing was trained in the steady windows"),
    ],
)
def test_what_cannot_be_is_an_error_and_no_improvement(history, column, value, name, why):
    """Also where the run is compared with another of the same kind: both measured nothing."""
    whole = run()
    constant = (value,) * whole.count
    broken = replace(whole, windows={**whole.windows, column: constant})
    for past in (history, [broken]):
        row = metric(judged(broken, *past), name)
        assert (row.verdict in ("ERROR", "INACTIVE"), row.change) == (True, None)
        assert why in row.reason
    assert judged(broken, *history).exit_code == 2
    assert metric(judged(whole, broken), name).verdict == "INACTIVE"


def test_no_lag_and_no_idle_time_are_measurements(history):
    none = replace(history[0], windows={**history[0].windows, "lag": (0.0,) * history[0].count})
    assert metric(judged(none, none), "lag_versions").verdict == "PASS"
    assert metric(judged(history[0], none), "lag_versions").verdict == "FAIL"


def test_windows_that_are_left_out_are_said(history):
    whole = run()
    tokens = tuple(None if i > 5 else value for i, value in enumerate(whole.windows["tokens"]))
    result = judged(replace(whole, windows={**whole.windows, "tokens": tokens}), *history)
    assert "trained tokens are known in 6 of 23 steady windows only" in result.doubts
    assert not any("are known in" in doubt for doubt in judged(whole, *history).doubts)


# -- acknowledged --------------------------------------------------------------------------


def known(**changes) -> tuple[Acknowledged, ...]:
    fields = {"metric": "*", "reason": "new reward model", "until": date(2026, 7, 1)} | changes
    return (Acknowledged(**fields),)


def test_an_acknowledged_change_does_not_fail(history):
    slow = run(slow={"update_actor": 1.6})
    result = judged(slow, *history, acknowledged=known())
    assert (result.verdict, result.exit_code) == ("PASS", 0)
    assert metric(result, "step_time_s").verdict == "FAIL"
    assert metric(result, "step_time_s").acknowledged.reason == "new reward model"


@pytest.mark.parametrize(
    "changes",
    [{"until": date(2026, 6, 14)}, {"up_to": 0.05}, {"metric": "samples_per_s"}],
    ids=["expired", "larger than accepted", "another metric"],
)
def test_an_acknowledgement_covers_no_more_than_it_says(history, changes):
    slow = run(slow={"update_actor": 1.6})
    assert judged(slow, *history, acknowledged=known(**changes)).exit_code == 1


def test_an_acknowledgement_that_was_renewed_counts_beside_the_old_one(history):
    slow = run(slow={"update_actor": 1.6})
    old, new = known(until=date(2026, 6, 1)), known(reason="still agreed")
    result = judged(slow, *history, acknowledged=(*old, *new))
    assert result.exit_code == 0
    assert metric(result, "step_time_s").acknowledged.reason == "still agreed"


def test_the_last_day_counts(history):
    slow = run(slow={"update_actor": 1.6})
    assert judged(slow, *history, acknowledged=known(until=TODAY)).exit_code == 0
