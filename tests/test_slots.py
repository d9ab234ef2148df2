"""Slots, overlap of the two sides, run-ahead, and time in no step, on hand-made timelines."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.analyzers.device_time.overlap import outside_steps, overlap, run_ahead
from rlinsight.analyzers.engines.slots import running_levels, slot_use

TWO = rlinsight.Topology(
    devices=TOPOLOGY.devices,
    lanes=[
        *TOPOLOGY.lanes,
        rlinsight.Lane(
            "replica1", role="replica", devices=["n0/0"], engine_kind="hybrid", capacity=2
        ),
    ],
)


def used(trace, topology, window):
    return slot_use(trace.requests.collect(), trace.counters.collect(), topology, window)


def test_the_worked_example_of_slots(tmp_path):
    t = Timeline(tmp_path / "t")
    for _ in range(4):
        t.gen(0, 5)
    t.gen(5, 10)
    (replica,) = used(t.open(), TOPOLOGY, (0, 20 * S)).lanes
    assert replica.utilization == pytest.approx(25 / 80)
    assert replica.generating_ratio == pytest.approx(0.5)
    assert replica.nearly_alone_share == pytest.approx(0.5)
    assert (replica.peak_running, replica.over_capacity_ratio) == (4, 0.0)


def test_hybrid_and_standalone_slots_are_never_added_up(tmp_path):
    t = Timeline(tmp_path / "t", TWO)
    t.gen(0, 10)
    found = used(t.open(), TWO, (0, 10 * S)).by_kind
    assert found["standalone"].utilization == pytest.approx(1 / 4)
    assert found["hybrid"].utilization == 0.0
    assert found["hybrid"].nearly_alone_share is None


def test_more_requests_than_slots_show_above_one(tmp_path):
    t = Timeline(tmp_path / "t")
    for _ in range(6):
        t.gen(0, 10)
    (replica,) = used(t.open(), TOPOLOGY, (0, 10 * S)).lanes
    assert replica.utilization == pytest.approx(1.5)
    assert replica.over_capacity_ratio == 1.0


def test_the_engines_own_count_tells_running_from_waiting(tmp_path):
    """Six requests 0-10, four slots: 0-5 four run, then two, as the counter says."""
    t = Timeline(tmp_path / "t")
    for _ in range(6):
        t.gen(0, 10)
    for at, running in ((-1, 4), (5, 2), (10, 0)):
        t.writer.counter("running_requests", running, lane="replica0", ts_ns=at * S)
    (replica,) = used(t.open(), TOPOLOGY, (0, 20 * S)).lanes
    assert replica.evidence == "engine counter"
    assert replica.utilization == pytest.approx((5 * 4 + 5 * 2) / (20 * 4))
    assert (replica.peak_running, replica.mean_running) == (4, 1.5)
    assert (replica.generating_ratio, replica.over_capacity_ratio) == (0.5, 0.5)


def test_without_any_request_nothing_is_known(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 10)
    assert used(t.open(), TOPOLOGY, (0, 10 * S)).lanes == ()


requests = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 50) | st.none()),
    max_size=30,
)


@given(requests)
def test_running_levels_tile_the_window_and_conserve_request_time(rows):
    frame = pl.DataFrame(
        rows,
        schema={"lane": pl.String, "submit_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    levels = running_levels(frame, ["a", "b", "never"], (10, 40))
    width = pl.col("end_ns") - pl.col("start_ns")
    tiled = levels.group_by("lane").agg(width.sum())["end_ns"].to_list()
    assert tiled == [30, 30, 30]
    expected = sum(
        max(0, min(40 if end is None else end, 40) - max(start, 10)) for _, start, end in rows
    )
    assert levels.select((width * pl.col("running")).sum()).item() == expected


def segments(*rows: tuple[str, str, int, int]) -> pl.DataFrame:
    schema = {"device": pl.String, "state": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_the_worked_example_of_overlap():
    found = overlap(segments(("t", "train.update_actor", 0, 6), ("r", "generate", 4, 10)), (0, 10))
    assert found.overlap_ratio == pytest.approx(0.2)
    assert found.hidden_share == pytest.approx(2 / 6)
    assert not found.alternating


def test_generation_that_stops_for_training_is_not_asynchronous():
    """Generation 2252 s, then training 1800 s, in turns (OpenRLHF#353)."""
    found = overlap(
        segments(("t", "train.update_actor", 2252, 4052), ("r", "generate", 0, 2252)), (0, 4052)
    )
    assert (found.overlap_ratio, found.alternating) == (0.0, True)


def test_a_run_that_only_generates_does_not_alternate():
    found = overlap(segments(("r", "generate", 0, 10)), (0, 10))
    assert not found.alternating
    assert found.hidden_share is None


def test_the_worked_example_of_run_ahead(tmp_path):
    t = Timeline(tmp_path / "t")
    for uid, produced, consumed, step in (
        ("a", 0, 10, 1), ("b", 0, 10, 1), ("c", 5, 20, 2), ("d", 5, 20, 2),
    ):  # fmt: skip
        t.trained(uid, consumed, (1, 1), step, produced_ns=produced * S)
    found = run_ahead(t.open().samples.collect(), (0, 20 * S))
    assert found.mean_samples == pytest.approx(2.5)
    assert found.mean_mini_batches == pytest.approx(1.25)
    assert (found.max_samples, found.max_mini_batches) == (4, 2.0)


def test_run_ahead_is_unknown_without_production_times(tmp_path):
    t = Timeline(tmp_path / "t")
    t.trained("a", 5, (1, 1), 1)
    assert run_ahead(t.open().samples.collect(), (0, 10 * S)) is None


def test_wall_time_in_no_step_and_what_the_driver_did_there(tmp_path):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 10)
    t.span("trainer", "validate", 10, 14)
    t.step(2, 15, 20)
    found = outside_steps(t.open().spans.collect(), (0, 20 * S))
    assert (found.outside_s, found.in_steps_s, found.longest_s) == (5.0, 15.0, 5.0)
    assert found.outside_ratio == pytest.approx(0.25)
    assert found.activities == {"validate": 4.0}


def test_what_the_counter_does_not_cover_is_not_empty(tmp_path):
    """The engine's counter begins in the middle: 4 of 4 slots, as far as is known."""
    t = Timeline(tmp_path / "t")
    for _ in range(4):
        t.gen(0, 20)
    t.writer.counter("running_requests", 4, lane="replica0", ts_ns=10 * S)
    (replica,) = used(t.open(), TOPOLOGY, (0, 20 * S)).lanes
    assert (replica.evidence, replica.utilization, replica.mean_running) == ("engine counter", 1, 4)
