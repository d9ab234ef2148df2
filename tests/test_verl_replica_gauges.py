"""What a replica records of its engine's counters."""

from __future__ import annotations

import inspect
import json
import warnings
from types import SimpleNamespace

import pytest
from live_rows import rows

import rlinsight
from rlinsight.collectors.verl import engine
from rlinsight.collectors.verl.engine import Envelope, ReplicaGauges
from rlinsight.collectors.verl.prefix_cache import HitRate
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.metrics.stats import IterationStats, PrefixCacheStats, SchedulerStats

SECOND = 1_000_000_000


def test_no_peak_of_a_fast_gauge_is_lost_between_two_samples():
    gauge = Envelope(interval_ns=10)
    points = []
    for ts, value in enumerate([0.1, 0.2, 0.9, 0.2, 0.05, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4]):
        points += gauge.add(ts, value)
    assert points == [(2, 0.9), (4, 0.05), (9, 0.3)]
    assert gauge.drain() == [(10, 0.4)]


def test_a_constant_gauge_is_recorded_once():
    gauge = Envelope(interval_ns=1)
    points = [point for ts in range(10) for point in gauge.add(ts, 0.5)]
    assert points == [(0, 0.5)]


def scheduler(running: int, waiting: int, usage: float) -> SchedulerStats:
    return SchedulerStats(num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage)


def test_running_and_waiting_requests_are_recorded_at_every_change(tmp_path):
    with rlinsight.recording(tmp_path / "t") as rec:
        gauges = ReplicaGauges("replica3", interval_ns=SECOND)
        preempted = IterationStats()
        preempted.num_preempted_reqs = 2
        for stats in (scheduler(1, 0, 0.1), scheduler(1, 0, 0.4), scheduler(2, 3, 0.2)):
            gauges.update(rec, 0, stats, None)
        gauges.update(rec, 0, None, preempted)
        gauges.update(rec, 0, scheduler(0, 0, 0.0), IterationStats())

    seen = [(row["name"], row["value"]) for row in rows(tmp_path / "t", "counters")]
    assert [v for n, v in seen if n == "running_requests"] == [1, 2, 0]
    assert [v for n, v in seen if n == "waiting_requests"] == [0, 3, 0]
    assert [v for n, v in seen if n == "preemptions"] == [0, 2]
    assert [v for n, v in seen if n == "kv_cache_usage"] == [0.4, 0.0]


def test_the_hit_rate_of_an_interval_is_hits_over_looked_up_tokens():
    rate = HitRate(interval_ns=SECOND)
    seen = [
        rate.add(at, PrefixCacheStats(requests=1, queries=queries, hits=hits))
        for at, queries, hits in [(0, 40, 0), (SECOND // 2, 60, 30), (SECOND, 100, 70)]
    ]
    assert seen == [None, None, 0.5]
    assert rate.add(2 * SECOND, None) is None  # nothing was looked up: no rate, not 0
    assert rate.add(3 * SECOND, PrefixCacheStats(requests=1, queries=10, hits=0)) == 0.0


def test_counts_add_over_the_engines_of_a_replica_and_drop_when_all_is_aborted(tmp_path):
    with rlinsight.recording(tmp_path / "t") as rec:
        gauges = ReplicaGauges("replica4", interval_ns=SECOND)
        gauges.update(rec, 0, scheduler(4, 1, 0.3), None)
        gauges.update(rec, 1, scheduler(2, 0, 0.7), None)
        gauges.drained(rec)

    seen = [(row["name"], row["value"]) for row in rows(tmp_path / "t", "counters")]
    assert [v for n, v in seen if n == "running_requests"] == [4, 6, 0]


def test_the_sampling_interval_comes_from_the_run(monkeypatch):
    monkeypatch.setenv("RLINSIGHT_COLLECTORS", json.dumps({"sample_interval_s": 0.25}))
    assert engine.sample_interval_ns() == SECOND // 4
    monkeypatch.setenv("RLINSIGHT_COLLECTORS", "not json")
    assert engine.sample_interval_ns() == SECOND


def test_statistics_are_asked_for_by_keyword_and_never_twice():
    """A call that gives them by position is let through as it is: twice would end the engine."""

    def started(*args, **kwargs):
        call = SimpleNamespace(args=args, kwargs=kwargs)
        engine.add_stat_logger(call)
        return call.kwargs

    assert started("config", stat_loggers=None) == {"stat_loggers": [engine.stat_logger]}
    assert started(stat_loggers=["mine"]) == {"stat_loggers": ["mine", engine.stat_logger]}
    kwargs: dict[str, object] = {}
    with pytest.raises(ValueError, match="by position"):
        engine.add_stat_logger(SimpleNamespace(args=tuple(range(8)), kwargs=kwargs))
    assert kwargs == {}


def test_the_place_of_the_statistics_is_that_of_the_installed_engine():
    parameters = [
        name for name in inspect.signature(AsyncLLM.__init__).parameters if name != "self"
    ]
    assert parameters.index("stat_loggers") == engine._STAT_LOGGERS_AT
