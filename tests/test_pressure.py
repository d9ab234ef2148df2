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
    return kv_pressure(t.open().counters.collect())


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


def test_a_cache_with_room_is_no_finding(t):
    record(t, "kv_cache_usage", 0.3, 0.5, 0.7, 0.85)
    record(t, "preemptions", 0)
    assert found(t) == ()
    assert found(t) == kv_pressure(t.open().counters.collect().clear())
