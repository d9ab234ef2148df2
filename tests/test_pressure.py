"""KV-cache pressure is seen before it becomes preemption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timelines import S, Timeline

from rlinsight.analyzers.engines.pressure import kv_pressure

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}


def record(t: Timeline, name: str, *values: float, every: float = 10) -> None:
    for i, value in enumerate(values):
        t.writer.counter(name, value, lane="replica0", ts_ns=round(i * every * S))


def found(t: Timeline):
    trace = t.open()
    return kv_pressure(trace.counters.collect(), trace.requests.collect())


@pytest.fixture
def t(tmp_path):
    return Timeline(tmp_path / "t")


def test_case_kv_pressure_lines(t):
    case = CASES["kv-pressure-lines"]
    given = case["input"]
    for name, key in (("running_requests", "running"), ("waiting_requests", "waiting"),
                      ("kv_cache_usage", "kv_usage")):  # fmt: skip
        record(t, name, *given[key], every=given["interval_s"])
    (row,) = found(t)
    assert row.finding == case["expect"]["finding"]
    assert row.rise_per_s == pytest.approx(0.0023)
    assert row.full_in_s == pytest.approx(0.042 / 0.0023)
    assert row.preemptions is None


def test_use_that_rises_with_more_requests_is_no_warning(t):
    record(t, "running_requests", 4, 8, 16)
    record(t, "kv_cache_usage", 0.5, 0.8, 0.92)
    (row,) = found(t)
    assert (row.finding, row.full_in_s) == ("kv_pressure", None)


def test_preemptions_are_counted_over_a_reset(t):
    record(t, "kv_cache_usage", 0.5, 0.6)
    record(t, "preemptions", 0, 3, 1, 2)
    (row,) = found(t)
    assert (row.finding, row.preemptions) == ("preempting", 5)


def test_preemptions_stand_beside_the_requests_of_their_replica_and_time(t):
    record(t, "kv_cache_usage", 0.5, 0.6, 0.95, 0.6)
    for at, total in ((10, 0), (30, 5)):
        t.writer.counter("preemptions", total, lane="replica0", ts_ns=at * S)
    for start, end in ((0, 9), (5, 15), (20, 40), (31, 50)):
        t.gen(start, end)
    t.gen(10, 30, lane="replica1")
    (row,) = found(t)
    assert (row.preemptions, row.requests) == (5, 2)


def test_where_no_preemptions_are_counted_nothing_stands_beside_them(t):
    record(t, "kv_cache_usage", 0.95, 0.95)
    t.gen(0, 10)
    (row,) = found(t)
    assert (row.preemptions, row.requests) == (None, None)


def test_a_cache_with_room_is_no_finding(t):
    record(t, "kv_cache_usage", 0.3, 0.5, 0.7, 0.85)
    record(t, "preemptions", 0)
    assert found(t) == ()
    trace = t.open()
    assert kv_pressure(trace.counters.collect().clear(), trace.requests.collect()) == ()
