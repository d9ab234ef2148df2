"""Stragglers given their work, spread of requests, versions per replica, tokens per rank."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.analyzers.engines.ranks import rank_balance
from rlinsight.analyzers.engines.replica_speed import replica_speeds
from rlinsight.analyzers.engines.spread import replica_versions, request_spread
from rlinsight.analyzers.engines.stragglers import batch_speed, workers_of_requests

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}
KINDS = {"replica0": "standalone", "replica1": "standalone"}


def topology(replicas: int = 2, ranks: int = 2) -> rlinsight.Topology:
    lanes = [
        rlinsight.Lane(f"replica{i}", role="replica", engine_kind="standalone", capacity=4)
        for i in range(replicas)
    ]
    lanes += [rlinsight.Lane(f"trainer/rank{i}", role="trainer_rank", rank=i) for i in range(ranks)]
    return rlinsight.Topology(devices=TOPOLOGY.devices, lanes=lanes)


def workers(*rows: tuple[str, float, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["lane", "seconds", "tokens", "max_tokens"], orient="row")


def test_case_rollout_worker_imbalance_is_a_long_tail_not_a_slow_replica():
    case = CASES["rollout-worker-imbalance"]
    found = batch_speed(pl.DataFrame([
        {"lane": f"worker{i}", **worker} for i, worker in enumerate(case["input"]["workers"])
    ]))  # fmt: skip
    expect = case["expect"]
    assert [round(w.tok_s_of_longest, 1) for w in found.workers] == pytest.approx(
        expect["tok_s_of_longest"], abs=0.11
    )
    assert [w.tok_s_of_total for w in found.workers] == pytest.approx(
        expect["tok_s_of_total"], abs=0.6
    )
    assert found.idle_ratio == pytest.approx(expect["batch_idle"], abs=1e-3)
    assert found.verdict == expect["verdict"] != expect["not"]


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([("a", 10, 1000, 100), ("b", 10.2, 1000, 100)], "balanced"),
        ([("a", 10, 1000, 400), ("b", 20, 2000, 410)], "uneven_work"),
        ([("a", 10, 1000, 100), ("b", 10, 1000, 100), ("c", 20, 1000, 100)], "slow_replica"),
        ([("a", 10, 1000, 100), ("b", 20, 3000, 100)], "mixed"),
    ],
)
def test_each_reason_why_workers_end_at_different_times(rows, verdict):
    assert batch_speed(workers(*rows)).verdict == verdict


def test_one_worker_is_no_batch():
    assert batch_speed(workers(("a", 10, 1000, 100))) is None


def test_workers_are_read_from_the_requests_of_a_batch(tmp_path):
    t = Timeline(tmp_path / "t")
    t.gen(0, 5, response_tokens=50)
    t.gen(1, 9, response_tokens=80)
    t.gen(0, 4, "replica1", response_tokens=40)
    t.gen(0, 99, "replica1", response_tokens=9, validate=True)
    t.gen(20, 22, response_tokens=30)
    begins = pl.Series([0, 20 * S])
    assert workers_of_requests(t.open().requests.collect(), begins).rows() == [
        (0, "replica0", 9.0, 130, 80),
        (0, "replica1", 4.0, 40, 40),
        (1, "replica0", 2.0, 30, 30),
    ]


def batches(t: Timeline, slow_s: float, every_s: float = 20) -> None:
    """Six batches, each a response on two replicas, one of which takes `slow_s` instead of 8 s."""
    for i in range(6):
        begin = every_s * i
        t.step(i + 1, begin, begin + every_s)
        t.trained(f"s{i}", begin + every_s - 1, (1, 100), i + 1)
        t.gen(begin, begin + 8, "replica0", response_tokens=100)
        t.gen(begin, begin + slow_s, "replica1", response_tokens=100)


def test_a_slow_replica_is_seen_in_every_batch_and_not_over_the_window(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    batches(t, slow_s=16)
    found = t.open().analyze().balance.batch
    assert (found.verdict, found.slowest, found.idle_ratio) == ("slow_replica", "replica1", 0.25)


def test_work_that_streams_has_no_batches(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    batches(t, slow_s=16, every_s=10)
    assert t.open().analyze().balance.batch is None


def test_a_hybrid_replica_that_was_lent_for_a_while_is_in_no_batch_with_standalone_ones(tmp_path):
    lanes = [
        rlinsight.Lane(f"replica{i}", role="replica", engine_kind=kind, capacity=4)
        for i, kind in enumerate(("hybrid", "standalone"))
    ]
    t = Timeline(tmp_path / "t", rlinsight.Topology(devices=TOPOLOGY.devices, lanes=lanes))
    batches(t, slow_s=16)
    assert t.open().analyze().balance.batch is None


def test_a_replica_that_takes_twice_the_time_per_token_is_slow(tmp_path):
    t = Timeline(tmp_path / "t")
    for i in range(20):
        t.gen(i, i + 1 + i % 3 * 0.01, "replica0", response_tokens=100)
        t.gen(i, i + 2 + i % 3 * 0.01, "replica1", response_tokens=100)
    fast, slow = replica_speeds(t.open().requests.collect(), KINDS)
    assert (fast.slow, slow.slow) == (False, True)


def test_a_replica_that_is_only_fuller_is_not_slow(tmp_path):
    """Time per token doubles with twice the requests: given its work, it is as fast."""
    t = Timeline(tmp_path / "t")
    for block in range(8):
        start, both = block * 10, block % 4 == 0
        for lane, crowd in (("replica0", 2 if both else 1), ("replica1", 1 if both else 2)):
            for _ in range(crowd):
                for part in range(2 // crowd):
                    t.gen(
                        start + part * crowd * 2, start + (part + 1) * crowd * 2, lane,
                        response_tokens=100,
                    )  # fmt: skip
    speeds = replica_speeds(t.open().requests.collect(), KINDS)
    assert speeds[1].mean_concurrency > speeds[0].mean_concurrency
    assert speeds[1].ms_per_token > 1.5 * speeds[0].ms_per_token
    assert [speed.slowdown for speed in speeds] == pytest.approx([1.0, 1.0])
    assert [speed.slow for speed in speeds] == [False, False]


def test_where_concurrency_never_varies_a_fuller_replica_is_not_judged(tmp_path):
    t = Timeline(tmp_path / "t")
    for i in range(12):
        t.gen(i, i + 1, "replica0", response_tokens=100)
        for _ in range(3):
            t.gen(3 * i, 3 * i + 3, "replica1", response_tokens=100)
    light, full = replica_speeds(t.open().requests.collect(), KINDS)
    assert (light.slow, full.slow) == (False, None)


def test_standalone_and_hybrid_replicas_are_not_compared(tmp_path):
    t = Timeline(tmp_path / "t")
    for i in range(12):
        t.gen(i, i + 1, "replica0", response_tokens=100)
        t.gen(i, i + 5, "replica1", response_tokens=100)
    kinds = {"replica0": "standalone", "replica1": "hybrid"}
    speeds = replica_speeds(t.open().requests.collect(), kinds)
    assert [speed.slow for speed in speeds] == [None, None]


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([(0, 10, "replica0")] * 4, "one_replica"),
        ([(0, 5, "replica0"), (5, 10, "replica1")], "serialized"),
        ([(0, 10, "replica0"), (0, 10, "replica1")] * 2, "even"),
        ([(0, 10, "replica0")] * 3 + [(0, 10, "replica1")], "skewed"),
    ],
)
def test_how_requests_are_spread_over_two_replicas(tmp_path, rows, verdict):
    t = Timeline(tmp_path / "t", topology())
    for start, end, lane in rows:
        t.gen(start, end, lane)
    found = request_spread(t.open().requests.collect(), topology(), (0, 10 * S))
    assert found.verdict == verdict
    assert sum(found.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rows", "verdict", "in_flight"),
    [
        # Asleep for 96 of 100 s, then 32 at once: as many as there are prompts.
        ([(0, 4, f"replica{i % 2}") for i in range(32)], "even", 32.0),
        # As many at once, and one of them takes all the time: a tail, which no client can fill.
        ([(0, 1, f"replica{i % 2}") for i in range(15)] + [(0, 100, "replica1")], "even", 1.15),
        # One after the other, between long sleeps.
        ([(0, 2, "replica0"), (2, 4, "replica1"), (90, 92, "replica0"), (92, 94, "replica1")],
         "serialized", 1.0),
        # The next is sent shortly before the one before it ends.
        ([(10 * i, 10 * i + 11, f"replica{i % 2}") for i in range(9)], "serialized", 99 / 91),
    ],
)  # fmt: skip
def test_a_client_is_only_serial_while_it_sends(tmp_path, rows, verdict, in_flight):
    t = Timeline(tmp_path / "t", topology())
    for start, end, lane in rows:
        t.gen(start, end, lane)
    found = request_spread(t.open().requests.collect(), topology(), (0, 100 * S))
    assert (found.verdict, found.mean_in_flight) == (verdict, pytest.approx(in_flight))


def test_a_slow_replica_has_more_of_the_time_and_is_no_matter_of_routing(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    for i in range(4):
        t.gen(i, i + 1, "replica0")
        t.gen(i, i + 6, "replica1")
    found = request_spread(t.open().requests.collect(), topology(), (0, 10 * S))
    assert found.shares["replica1"] == pytest.approx(6 / 7)
    assert found.routed["replica1"] == 0.5
    assert found.verdict == "even"


def test_routing_that_sticks_to_one_replica_shows_as_drift(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    for i in range(30):
        for lane, here in (("replica0", True), ("replica1", i < 10)):
            if here:
                t.gen(i, i + 1, lane)
    found = request_spread(t.open().requests.collect(), topology(), (0, 30 * S))
    assert found.drift == pytest.approx(0.5)


def synced(t: Timeline, lane: str, **versions: float) -> None:
    for name, at in versions.items():
        t.writer.marker("param_sync", lane=lane, param_version=int(name[1:]), ts_ns=round(at * S))


def test_the_worked_example_of_a_replica_whose_version_lags(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    synced(t, "replica0", v1=10, v2=20, v3=30)
    synced(t, "replica1", v1=11)
    ok, late = replica_versions(t.open().markers.collect(), topology(), 40 * S)
    assert (ok.versions_behind, ok.lagging, ok.behind_s) == (0, False, None)
    assert (late.versions_behind, late.lagging, late.behind_s) == (2, True, 20.0)
    assert late.max_lag_s == 1.0


def test_a_sync_under_way_is_not_a_lag_and_a_skipped_version_is_named(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    synced(t, "replica0", v1=10, v2=20, v3=30, v4=40)
    synced(t, "replica1", v1=11, v3=31)
    _, late = replica_versions(t.open().markers.collect(), topology(), 40 * S + S // 2)
    assert (late.versions_behind, late.lagging, late.skipped) == (1, False, (2,))


def test_a_replica_that_is_added_later_skipped_nothing_before(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    synced(t, "replica0", v1=10, v2=20, v3=30, v4=40, v5=50)
    synced(t, "replica1", v3=31, v4=41)
    _, late = replica_versions(t.open().markers.collect(), topology(), 50 * S + S // 2)
    assert (late.skipped, late.lagging) == ((), False), "the fifth may still come"


def ranks(t: Timeline, start: float, *work: tuple[float, int | None]) -> None:
    for rank, (seconds, tokens) in enumerate(work):
        attrs = None if tokens is None else {"tokens": tokens}
        t.span(f"trainer/rank{rank}", "update_actor", start, start + seconds, attrs=attrs)


def test_the_worked_example_of_rank_balance(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    ranks(t, 0, (4, 300), (4, 100))
    found = rank_balance(t.open().spans.collect(), topology())
    assert (found.dp_imbalance, found.time_imbalance) == (pytest.approx(0.5), 0.0)
    assert found.lost_share == pytest.approx(1 - 200 / 300)
    assert [rank.slow for rank in found.ranks] == [None, None], "they wait for each other"


def test_a_rank_that_takes_longer_for_the_same_tokens_is_slow(tmp_path):
    t = Timeline(tmp_path / "t", topology(ranks=3))
    for start in (0, 10):
        ranks(t, start, (4, 100), (4, 100), (6, 100))
    found = rank_balance(t.open().spans.collect(), topology(ranks=3))
    assert found.calls == 2
    assert found.dp_imbalance == 0.0
    assert [rank.slow for rank in found.ranks] == [None, None, True]


def test_unknown_tokens_stay_unknown(tmp_path):
    t = Timeline(tmp_path / "t", topology())
    ranks(t, 0, (4, 300), (4, None))
    found = rank_balance(t.open().spans.collect(), topology())
    assert (found.dp_imbalance, found.lost_share) == (None, None)
    assert [rank.tokens for rank in found.ranks] == [300, None]


@pytest.mark.parametrize(("mode", "named"), [("fully_async", "test_freq"), ("sync", "save_freq")])
def test_a_validation_is_named_by_its_setting_in_the_unit_of_the_mode(tmp_path, mode, named):
    """Every 8th step waits: 2 versions of 4 steps in fully_async, 8 steps in the other modes."""
    config = {
        "trainer": {"test_freq": 2, "save_freq": 8},
        "async_training": {"trigger_parameter_sync_step": 4},
    }
    t = Timeline(tmp_path / "t", mode=mode, config=config)
    for step in range(1, 49):
        begin = 20 * step
        t.step(step, begin, begin + 20)
        t.gen(begin, begin + 20)
        t.span("trainer", "update_actor", begin, begin + (20 if step % 8 else 10), step=step)
        t.trained(f"s{step}", begin + 1, (1, 1), step)
    (found, *_) = t.open().analyze().balance.periodic
    assert (found.period_steps, found.settings) == (8, (f"trainer.{named}",))
