"""Defects of verl's own figures are named where they occur, and only there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timelines import TOPOLOGY, S, Timeline
from verl_logs import metrics, over_steps, recorded

from rlinsight.analyzers.framework.defects import (
    lost_last_updates,
    shifted_rows,
    sums_called_max,
    updates_per_row,
)
from rlinsight.analyzers.framework.figures_out_of_range import (
    constant_values,
    older_than_run,
    ratios_outside_unit,
)
from rlinsight.analyzers.framework.idle_figures import (
    diagnose,
    idle_figures,
    lost_resumes,
    one_pause_only,
)

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}

#: The 16 updates of the recorded fully_async run, seconds, from its own spans.
UPDATES = (12.577, .768, .695, 1.580, .528, .234, .883, .417, .301, .508, .689, 1.717, .520, .252,
           .658, .800)  # fmt: skip


@pytest.fixture
def t(tmp_path):
    return Timeline(tmp_path / "t")


def updates(t: Timeline, *seconds: float):
    at = 0.0
    for number, width in enumerate(seconds, 1):
        t.step(number, at, at + width)
        at += width
    return t.open().spans.collect()


def test_rows_of_the_recorded_run_are_shifted_by_one_update(t):
    log, spans = recorded("fully_async_trace"), updates(t, *UPDATES)
    assert updates_per_row(log) == 2
    found = shifted_rows(log, spans)
    assert (found.evidence["shift_updates"], found.steps) == (1, tuple(range(1, 9)))
    # Row 1 holds update 1 alone, so it cannot be compared.
    assert found.evidence["rows_compared"] == 7
    assert found.evidence["rows_equal_shifted_sum"] == 7
    assert found.evidence["rows_equal_cycle_sum"] == 0


def test_the_shift_shows_without_spans_and_not_in_other_modes(t):
    nothing = t.open().spans.collect()
    assert "rows_compared" not in shifted_rows(recorded("fully_async_trace"), nothing).evidence
    for mode in ("sync", "colocate_async", "separate_async_switch"):
        assert shifted_rows(recorded(mode), nothing) is None


def test_the_last_update_of_the_recorded_run_is_lost(t):
    log, spans = recorded("fully_async_trace"), updates(t, *UPDATES)
    found = lost_last_updates(log, spans)
    assert (found.steps, found.evidence["last_logged_step"]) == ((16,), 15)
    assert found.evidence["lost_s"] == pytest.approx(0.8)
    assert lost_last_updates(log, spans.filter(spans["step"] < 16)) is None


def test_the_row_of_what_is_left_and_a_failed_last_step_are_no_exceptions(t):
    """Five versions of two updates; the tenth is logged under step 5 too, the eleventh fails."""
    for number in range(1, 11):
        t.step(number, 10 * number, 10 * number + number)
    failed = {"error": "TrainingStopException"}
    t.step(11, 110, 111, attrs=failed)
    rows = [(k, 2 * k - 1, (2 * k - 2 if k > 1 else 0) + 2 * k - 1) for k in range(1, 6)]
    log = metrics(
        *((30 * k, k, "training/global_step", step) for k, step, _ in rows),
        *((30 * k, k, "timing_s/step", seconds) for k, _, seconds in rows),
        (160, 5, "training/global_step", 10),
        (160, 5, "timing_s/step", 10),
    )
    spans = t.open().spans.collect()
    found = shifted_rows(log, spans)
    assert found.evidence["rows_equal_shifted_sum"] == found.evidence["rows_compared"] == 4
    assert lost_last_updates(log, spans) is None


def test_a_sum_that_is_called_max():
    key = "timing_s/agent_loop/generate_sequences/max"
    rows = [(k, k, "training/global_step", 4 * k - 1) for k in (1, 2, 3)]
    rows += [(k, k, key, 31.0) for k in (1, 2, 3)]
    rows += [(k, k, "timing_s/agent_loop/tool_calls/max", 31.0) for k in (1, 2, 3)]
    asynchronous = metrics(*rows, (1, 1, "fully_async/trainer/idle_ratio", 0.2))
    (found,) = sums_called_max(asynchronous)
    assert found.where == key
    assert "7.75 and 31.00 s" in found.told
    assert sums_called_max(metrics(*rows)) == ()
    assert sums_called_max(recorded("fully_async_trace")) == ()


def test_ratios_outside_their_range_are_kept_and_named():
    log = over_steps(
        fully_async__rollouter__idle_ratio=[0.2, 1.37, -0.1],
        rollout_corr__ppl_ratio=[1.2, 1.3, 1.1],
        response_length__clip_ratio=[0.0, 1.0, float("nan")],
    )
    (found,) = ratios_outside_unit(log)
    assert (found.steps, found.reference) == ((2, 3), "verl#5749")
    assert (found.evidence["lowest"], found.evidence["highest"]) == (-0.1, 1.37)


@pytest.mark.parametrize(
    "run", ["sync", "colocate_async", "separate_async_switch", "fully_async_trace"]
)
def test_recorded_runs_have_no_value_out_of_range(run):
    log = recorded(run)
    assert ratios_outside_unit(log) == ()
    assert older_than_run(log, started_ns=0) == ()
    assert constant_values(log) == ()


def test_a_wait_since_1970_is_a_clock_not_a_duration():
    log = metrics((100, 1, "timing_s/queue_wait", 1.7e9), (200, 2, "timing_s/queue_wait", 3.0))
    (found,) = older_than_run(log, started_ns=0)
    assert (found.steps, found.evidence["age_s"]) == ((1,), 100.0)


def test_a_value_at_a_constant_is_a_cap():
    (found,) = constant_values(over_steps(timing_s__wait=[20.0, 20.0, 3.1, 20.0]))
    assert (found.evidence["constant_s"], found.steps) == (20.0, (1, 2, 4))
    assert constant_values(over_steps(timing_s__gen=[2.011, 2.012, 2.014])) == ()


def test_case_both_idle_ratios_zero_but_slow():
    case = CASES["both-idle-ratios-zero-but-slow"]
    given = case["input"]
    found = diagnose(
        trainer_idle_ratio=given["trainer_idle_ratio"],
        rollouter_idle_ratio=given["rollouter_idle_ratio"],
        pauses=given["pause_windows"],
        update_share=given["update_actor_share"],
        queue_at_cap=given["queue_at_cap"],
    )
    assert found.bound == case["expect"]["bound"]
    assert case["expect"]["flag"] == "framework_metric_disagrees"
    assert found.framework_disagrees


def paused_twice_a_version(t: Timeline) -> None:
    """Two versions of 10 s: paused 2-4 and 6-10, nothing drained; update_actor takes 90 %."""
    for version in range(2):
        start = 10 * version
        t.step(version + 1, start, start + 10)
        t.span("trainer", "update_actor", start, start + 9)
        for a, b in ((2, 4), (6, 10)):
            reason = {"reason": "staleness_quota"}
            t.span("rollouter", "paused", start + a, start + b, attrs=reason)
        for key, value in (
            ("fully_async/trainer/idle_ratio", 0.01),
            ("fully_async/rollouter/idle_ratio", 0.0),
            ("fully_async/rollouter/version_time", 10.0),
        ):
            t.writer.metric(key, value, step=version + 1, ts_ns=(start + 10) * S)
    for name, value in (("max_required_samples", 12), ("staleness_samples", 12)):
        t.writer.counter(name, value, lane="rollouter", ts_ns=2 * S)


def test_the_same_case_from_a_recorded_timeline(t):
    paused_twice_a_version(t)
    trace = t.open()
    found = idle_figures(
        trace.metrics.collect(), trace.spans.collect(), trace.counters.collect(), TOPOLOGY,
        (0, 20 * S),
    )  # fmt: skip
    assert (found.bound, found.framework_disagrees, found.pauses) == ("trainer", True, 4)
    assert found.rollouter_paused_ratio == pytest.approx(0.6)
    assert found.rollouter_drained_ratio == 0.0
    assert found.update_share == pytest.approx(0.9)
    assert found.queue_at_cap is True


def test_two_low_ratios_without_a_pause_are_no_disagreement():
    found = diagnose(trainer_idle_ratio=0.01, rollouter_idle_ratio=0.0, pauses=0, update_share=0.9)
    assert (found.framework_disagrees, found.bound, found.told) == (False, None, None)


def test_the_worked_example_of_a_ratio_that_misses_pauses(t):
    paused_twice_a_version(t)
    trace = t.open()
    found = one_pause_only(trace.metrics.collect(), trace.spans.collect(), TOPOLOGY)
    assert (found.steps, found.reference) == ((1, 2), "verl#6693")
    assert found.evidence["worst_paused_ratio"] == pytest.approx(0.6)
    assert found.evidence["worst_logged"] == 0.0


def test_a_ratio_that_agrees_with_the_pauses_is_no_defect(t):
    attrs = {"reason": "staleness_quota", "idle_start_ns": 7 * S}
    t.span("rollouter", "paused", 7, 10, attrs=attrs)
    t.writer.metric("fully_async/rollouter/idle_ratio", 0.3, step=1, ts_ns=10 * S)
    t.writer.metric("fully_async/rollouter/version_time", 10.0, step=1, ts_ns=10 * S)
    trace = t.open()
    log, spans = trace.metrics.collect(), trace.spans.collect()
    assert one_pause_only(log, spans, TOPOLOGY) is None
    figures = idle_figures(log, spans, trace.counters.collect(), TOPOLOGY, (0, 11 * S))
    assert figures.rollouter_drained_ratio == pytest.approx(3 / 11)


def test_a_pause_over_a_version_boundary_is_split_not_counted_twice(t):
    t.span("rollouter", "paused", 8, 14, attrs={"reason": "staleness_quota"})
    for version in (1, 2):
        for key, value in (("idle_ratio", 0.0), ("version_time", 10.0)):
            key = f"fully_async/rollouter/{key}"
            t.writer.metric(key, value, step=version, ts_ns=10 * version * S)
    trace = t.open()
    found = one_pause_only(trace.metrics.collect(), trace.spans.collect(), TOPOLOGY)
    assert found.evidence["worst_paused_ratio"] == pytest.approx(0.4)
    assert found.steps == (1, 2)


def test_the_worked_example_of_a_lost_resume(t):
    t.span("rollouter", "paused", 20, 29, attrs={"resumed_by": "weight_sync"})
    t.span("rollouter", "paused", 29.9, 37, attrs={"resumed_by": "monitor"})
    t.writer.marker("lost_resume", lane="rollouter", ts_ns=30 * S)
    trace = t.open()
    found = lost_resumes(trace.spans.collect(), trace.markers.collect(), TOPOLOGY)
    assert (found.evidence["lost"], found.evidence["lost_s"]) == (1, 7.0)
    assert lost_resumes(trace.spans.collect(), trace.markers.collect().clear(), TOPOLOGY) is None
