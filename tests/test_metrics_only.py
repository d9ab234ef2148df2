"""What step metrics alone tell, on published figures and on metrics of real runs."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from timelines import TOPOLOGY, Timeline
from verl_logs import metrics, over_steps, recorded

from rlinsight.analyzers.framework.breakdown import breakdown, change
from rlinsight.analyzers.framework.known_defects import known_defects, polled_waits
from rlinsight.analyzers.framework.metrics_only import (
    dp_imbalance,
    metrics_only,
    outside_rows,
    update_findings,
)

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}


def case(name: str) -> tuple[dict, dict]:
    return CASES[name]["input"], CASES[name]["expect"]


def test_case_async_step_breakdown():
    given, expect = case("async-step-breakdown")
    phases = {k: v for k, v in given.items() if k not in ("total", "age")}
    found = breakdown(given["total"], phases, ["exposed_generation"])
    assert found.residual_s == pytest.approx(expect["residual_s"])
    assert found.bound == expect["bound"]
    assert sum(found.shares.values()) + found.residual_s / given["total"] == pytest.approx(1)


def test_case_two_runs_generation_vs_update():
    given, expect = case("two-runs-generation-vs-update")
    given = dict(given)
    steps = given.pop("step")
    runs = [
        breakdown(step, {name: times[i] for name, times in given.items()}, ["gen_wait"])
        for i, step in enumerate(steps)
    ]
    assert [run.bound for run in runs] == expect["bound"]


def test_case_npu_sync_vs_async():
    given, expect = case("npu-sync-vs-async")
    sync, asynchronous = (
        breakdown(
            given[f"{mode}_step_s"],
            {"wait": given[f"{mode}_train_wait_s"], "train": given[f"{mode}_train_s"]},
            ["wait"],
        )
        for mode in ("sync", "async")
    )
    found = change(sync, asynchronous)
    assert round(found.speedup, 2) == expect["speedup"]
    assert found.wait_removed_s == pytest.approx(expect["wait_removed_s"])
    assert found.changes_s["train"] == pytest.approx(expect["train_slowdown_s"])


def test_case_dp_balance_before_after_is_explained_by_training():
    given, expect = case("dp-balance-before-after")
    before, after = (
        breakdown(step, {"train": train, "rest": step - train}, None)
        for step, train in zip(given["step_s"], given["train_s"], strict=True)
    )
    found = change(before, after)
    assert round(found.step_gain, 3) == expect["step_gain"]
    assert found.explained_by == "train"
    assert found.wait_removed_s is None


def seqlen(low: float, high: float, mfu: float) -> pl.DataFrame:
    return over_steps(global_seqlen__min=[low], global_seqlen__max=[high], perf__mfu__actor=[mfu])


def test_case_underfilled_micro_batches():
    given, expect = case("underfilled-micro-batches")
    log = seqlen(given["global_seqlen_min"], given["global_seqlen_max"], given["mfu"])
    found = metrics_only(log)
    assert found.findings == (expect["first"], expect["second"])
    assert found.dp_imbalance == pytest.approx(0.104, abs=1e-3)


def test_case_late_slow_steps_balanced_is_not_dp_imbalance():
    given, expect = case("late-slow-steps-balanced")
    log = seqlen(given["global_seqlen_min"], given["global_seqlen_max"], given["mfu_actor"])
    found = metrics_only(log)
    assert round(found.dp_imbalance, 3) == expect["dp_imbalance"]
    assert expect["not"] not in found.findings


def test_unknown_figures_give_no_findings():
    assert update_findings(None, None) == ()
    found = metrics_only(over_steps(actor__lr=[1e-6]))
    assert (found.breakdown, found.dp_imbalance, found.long_tail_idle, found.rows) == (
        None, None, None, 0,
    )  # fmt: skip


def test_the_recorded_fully_async_run():
    found = metrics_only(recorded("fully_async_trace"))
    assert found.mode == "fully_async"
    parts = found.breakdown
    assert parts.step_s == pytest.approx(22.33 / 8, abs=0.01)
    assert set(parts.phases) == {"gen", "reward", "adv", "update_actor", "param_sync"}
    assert 0 < parts.residual_s < 0.02 * parts.step_s
    assert parts.wait_share == pytest.approx(13.607 / 22.33, abs=0.01)
    assert parts.bound == "rollout"
    assert 0 < found.long_tail_idle < 1
    assert "no device time" in found.source


def test_the_recorded_sync_run_alternates_and_hides_time_in_its_first_step():
    found = metrics_only(recorded("sync"), mode="sync")
    assert (found.breakdown.bound, found.breakdown.wait_s) == ("pipeline", None)
    # verl's first step holds six seconds of start-up that no timer covers.
    assert found.breakdown.residual_s * 4 == pytest.approx(6.0, abs=0.3)
    assert found.dp_imbalance == 0.0


def test_the_recorded_separate_async_run_waits_in_gen_not_in_switch_wait():
    found = metrics_only(recorded("separate_async_switch")).breakdown
    assert found.wait_share < 0.01
    assert found.shares["switch_wait"] > 0.5


def test_balanced_tokens_come_before_the_batch_as_it_came():
    log = over_steps(
        global_seqlen__min=[50], global_seqlen__max=[150], global_seqlen__mean=[100],
        global_seqlen__balanced_min=[99], global_seqlen__balanced_max=[101],
    )  # fmt: skip
    assert dp_imbalance(log) == pytest.approx(0.01)
    assert dp_imbalance(log, balanced=False) == pytest.approx(0.5)


def test_wall_time_in_no_step_between_rows():
    log = metrics(
        (10, 1, "timing_s/step", 9), (22, 2, "timing_s/step", 10), (40, 3, "timing_s/step", 10),
        (40, 3, "timing_s/testing", 7),
    )  # fmt: skip
    found = outside_rows(log)
    assert (found.wall_s, found.outside_s) == (30.0, 10.0)
    assert found.known_s == {"testing": 7.0}
    same_time = log.with_columns(ts_ns=pl.lit(0, pl.Int64))
    assert outside_rows(same_time) is None


def test_all_known_defects_of_a_recorded_run(tmp_path):
    trace = Timeline(tmp_path / "t").open()
    tables = {"spans": trace.spans.collect(), "markers": trace.markers.collect()}
    found = known_defects(
        metrics=recorded("fully_async_trace"), topology=TOPOLOGY, started_ns=0, **tables
    )
    assert [defect.name for defect in found] == ["rows_shifted"]
    found = known_defects(metrics=recorded("sync"), topology=TOPOLOGY, started_ns=0, **tables)
    assert [(defect.name, defect.where) for defect in found] == [("poll_quantised", "timing_s/gen")]
    assert "multiple of 2 s" in polled_waits(recorded("sync"))[0].told
