"""The long tail's cost on hand-computed replicas of capacity 4. Times are seconds."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_frames import frame
from timelines import TOPOLOGY, S

import rlinsight
from rlinsight.analyzers.lengths.tail import tail_cost


def gens(*intervals, lane="replica0", **columns):
    rows = [
        {
            "request_id": f"{lane}-{start}-{end}-{i}",
            "lane": lane,
            "submit_ns": round(start * S),
            "end_ns": None if end is None else round(end * S),
            **columns,
        }
        for i, (start, end) in enumerate(intervals)
    ]
    return frame("requests", rows)


def gauge(name, *changes, lane="rollouter"):
    rows = [{"ts_ns": at * S, "name": name, "lane": lane, "value": value} for at, value in changes]
    return frame("counters", rows)


def measure(requests, **arguments):
    return tail_cost(requests, topology=TOPOLOGY, **arguments)


BATCH = [(0, 4), (0, 6), (0, 10), (0, 20)]


def test_the_last_responses_of_a_batch_keep_the_replica():
    found = measure(gens(*BATCH))
    assert found.cost_device_seconds == pytest.approx(0.25 * 2 + 0.5 * 4 + 0.75 * 10)
    assert (found.tail_device_seconds, found.busy_device_seconds) == (16.0, 20.0)
    assert found.share_of_busy == pytest.approx(0.5)
    assert (found.tails, found.evidence) == (1, "last submission")


def test_a_replica_that_is_refilled_has_no_tail_until_the_last_refill():
    # A place is free 4-5, then again from 10 on; the last request came at 5.
    found = measure(gens((0, 4), (0, 10), (0, 10), (0, 10), (5, 12)))
    assert found.cost_device_seconds == pytest.approx(0.75 * 2)


def test_each_batch_has_a_tail_of_its_own():
    found = measure(gens((0, 2), (0, 4), (10, 12), (10, 16)))
    # Two at once fill what was ever used of the replica, though it could take four.
    assert (found.cost_device_seconds, found.tails) == (0.5 * 2 + 0.5 * 4, 2)


def test_more_requests_than_capacity_are_a_queue_not_a_tail():
    found = measure(gens((0, 4), (0, 4), (0, 8), (0, 8), (0, 8), (0, 8)))
    assert found.cost_device_seconds == 0.0


def test_a_request_that_follows_at_once_keeps_the_replica_busy():
    found = measure(gens((0, 4), (4, 8)))
    assert (found.cost_device_seconds, found.busy_device_seconds, found.tails) == (0.0, 8.0, 0)


def test_prompts_that_are_left_make_an_under_filled_replica_no_tail():
    pending = gauge("pending_queue", (0, 5), (10, 0))
    found = measure(gens(*BATCH), counters=pending)
    assert found.evidence == "pending counter"
    assert found.cost_device_seconds == pytest.approx(0.75 * 10)


def test_a_paused_rollouter_hands_nothing_out_though_prompts_are_left():
    pending = gauge("pending_queue", (0, 5))
    paused = {"activity": "paused", "lane": "rollouter", "start_ns": 8 * S, "end_ns": 15 * S}
    found = measure(gens(*BATCH), counters=pending, spans=frame("spans", [paused]))
    assert found.cost_device_seconds == pytest.approx(0.5 * 2 + 0.75 * 5)


def test_a_lone_refill_does_not_hide_a_tail_that_the_counter_shows():
    requests = gens((0, 20), (0, 2), (0, 2), (0, 2), (10, 12))
    assert measure(requests).cost_device_seconds == pytest.approx(0.5 * 2 + 0.75 * 8)
    found = measure(requests, counters=gauge("pending_queue", (0, 1), (1, 0)))
    assert found.cost_device_seconds == pytest.approx(0.75 * 8 + 0.5 * 2 + 0.75 * 8)


def test_requests_waiting_inside_the_engine_are_left_to_schedule():
    waiting = gauge("waiting_requests", (0, 0), (4, 2), (10, 0), lane="replica0")
    found = measure(gens(*BATCH), counters=waiting)
    assert found.evidence == "last submission"
    assert found.cost_device_seconds == pytest.approx(0.75 * 10)


def test_validation_alone_is_no_tail_of_training():
    both = pl.concat([gens((0, 4), (0, 6)), gens((0, 20), (0, 20), validate=True)])
    found = measure(both)
    assert found.cost_device_seconds == pytest.approx(0.25 * 2)
    assert found.busy_device_seconds == 6.0


def test_a_replica_counts_with_all_its_devices():
    topology = rlinsight.Topology(
        lanes=[rlinsight.Lane("replica0", role="replica", devices=["a", "b"], capacity=4)]
    )
    assert tail_cost(gens(*BATCH), topology=topology).cost_device_seconds == pytest.approx(20)
    assert tail_cost(gens(*BATCH)).cost_device_seconds == pytest.approx(10)


def test_a_request_without_end_is_in_flight_to_the_last_time_known():
    found = measure(gens((0, 4), (0, 6), (0, 10), (0, None), (0, 20), lane="replica0"))
    assert found.cost_device_seconds == pytest.approx(0.25 * 4 + 0.5 * 10)


def test_the_window_cuts_the_cost_but_not_the_judgement():
    found = measure(gens(*BATCH), window=(8 * S, 12 * S))
    assert found.cost_device_seconds == pytest.approx(0.5 * 2 + 0.75 * 2)
    assert found.busy_device_seconds == 4.0


def test_replicas_are_judged_apart():
    found = measure(pl.concat([gens(*BATCH), gens((0, 5), lane="replica1")]))
    assert [(r.lane, r.tails) for r in found.replicas] == [("replica0", 1), ("replica1", 0)]


def test_nothing_recorded_is_not_a_cost_of_0():
    assert measure(gens()) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=12))
def test_the_cost_is_the_area_under_the_level_once_nothing_comes_any_more(rows):
    intervals = [(start, start + width) for start, width in rows]
    expected = 0.0
    for second in range(40):
        running = [i for i in intervals if i[0] <= second < i[1]]
        if not running:
            continue
        first = second  # the busy period around this second
        while any(s < first <= e for s, e in intervals):
            first = max(s for s, e in intervals if s < first <= e)
        last = second + 1
        while any(s <= last < e for s, e in intervals):
            last = max(e for s, e in intervals if s <= last < e)
        level = {t: sum(s <= t < e for s, e in intervals) for t in range(first, last)}
        full = min(4, max(level.values()))
        was_full = any(level[t] >= full for t in range(first, second + 1))
        more = any(second < s < last for s, _ in intervals)
        if was_full and not more and level[second] < full:
            expected += 1 - level[second] / full
    assert measure(gens(*intervals)).cost_device_seconds == pytest.approx(expected)
