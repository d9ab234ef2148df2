"""Decoding as processor sharing, followed by hand: pace 1 s a token alone, 2 s for two."""

from __future__ import annotations

from math import inf

import pytest
from simulated import world

from rlinsight.analyzers.simulate.replicas import DRAINED, Replicas

PACE = (1.0, 1.0, 2.0)  # seconds per token by responses running


def replicas(count: int = 1, pace=PACE, **settings) -> Replicas:
    return Replicas(count, pace, settings.pop("start_s", 0.0), **settings)


def submit(pool: Replicas, *works: float, at: float = 0.0, replica: int = 0) -> list[int]:
    groups = [pool.new_group(1) for _ in works]
    for work, group in zip(works, groups, strict=True):
        pool.submit(at, replica, work, group)
    return groups


def ends(pool: Replicas, until: float = inf) -> list[tuple[float, int]]:
    found = []
    while (ended := pool.run(until)) is not None:
        found.append(ended)
    return found


def test_two_responses_share_the_replica_until_the_shorter_ends():
    # 10 and 4 tokens: 4 each by 8 s (2 s a token), then 6 more alone by 14 s.
    pool = replicas()
    long, short = submit(pool, 10, 4)
    assert ends(pool) == [(8.0, short), (14.0, long)]
    assert pool.busy_s == [14.0]


def test_a_newcomer_slows_what_runs():
    # alone 0-4 s: 4 tokens; with a newcomer of 3 tokens 4-10 s: 3 each; alone again 10-13 s.
    pool = replicas()
    (first,) = submit(pool, 10)
    assert pool.run(4.0) is None
    (second,) = submit(pool, 3, at=4.0)
    assert ends(pool) == [(10.0, second), (13.0, first)]


def test_above_capacity_responses_wait_in_order():
    pool = replicas(pace=(1.0, 1.0))
    first, second, third = submit(pool, 3, 2, 1)
    assert pool.queued(0)
    assert ends(pool) == [(3.0, first), (5.0, second), (6.0, third)]


def test_a_start_holds_its_slot():
    pool = replicas(pace=(1.0, 1.0), start_s=0.5)
    first, second = submit(pool, 3, 2)
    assert ends(pool) == [(3.5, first), (6.0, second)]


def test_a_group_ends_with_its_last_response():
    pool = replicas(2)
    group = pool.new_group(2)
    pool.submit(0.0, 0, 3, group)
    pool.submit(0.0, 1, 7, group)
    assert ends(pool) == [(7.0, group)]
    assert pool.busy_s == [3.0, 7.0]


def test_an_abort_keeps_what_was_generated():
    pool = replicas()
    (group,) = submit(pool, 10)
    pool.run(4.0)
    pool.close([0])
    assert pool.abort(4.0, [0]) == [(0, 6.0, group)]
    pool.submit(5.0, 0, 6, group)  # parked: the gate is closed
    assert pool.run(100.0) is None
    for replica, work, parked in pool.open([0]):
        pool.submit(100.0, replica, work, parked)
    assert ends(pool) == [(106.0, group)]
    assert pool.busy_s == [10.0]


def test_the_last_one_to_start_behind_a_closed_gate_is_told():
    # The barrier before an abort waits for it.
    pool = replicas(pace=(1.0, 1.0))
    pool.submit(0.0, 0, 3, pool.new_group(2))
    pool.submit(0.0, 0, 3, 0)
    pool.close([0])
    assert pool.run(inf) == (3.0, DRAINED)
    assert pool.run(inf) == (6.0, 0)


def test_requests_go_to_the_least_loaded_replica():
    pool = replicas(3)
    submit(pool, 5, 5, replica=0)
    submit(pool, 5, replica=1)
    assert pool.route(4) == [2, 1, 2, 0]
    pool.routed = [0]
    assert pool.route(2) == [0, 0]


def test_transport_counts_as_busy_once():
    # Busy 0-3 s and 1 s of transport; the next starts at 3.5 s, within it: 0-5.5 s and 1 more.
    pool = replicas(edge_s=1.0)
    submit(pool, 3)
    ends(pool)
    submit(pool, 2, at=3.5)
    ends(pool)
    assert pool.busy_s == [6.5]


def test_transport_is_busy_no_further_than_it_has_got():
    # Busy 0-3 s; its response is on its way back until 4 s.
    pool = replicas(edge_s=1.0)
    submit(pool, 3)
    ends(pool)
    assert [pool.busy(now, [0]) for now in (3.0, 3.25, 4.0, 9.0)] == [3.0, 3.25, 4.0, 4.0]


def test_an_aborted_request_asks_again_a_second_later():
    job = world(lengths=(10,))
    job.submit_group()
    job.run_for(4.0)
    job.abort(job.standalone)
    job.open(job.standalone)
    ended: list[float] = []
    job.on_group = lambda _: ended.append(job.now)
    job.run_for(20.0)
    assert ended == [pytest.approx(4.0 + 1.0 + 6.0)]


def test_an_abort_waits_for_what_is_queued_inside():
    # One slot, two responses of 5: the abort at 1 s takes hold when the second starts, at 5 s.
    job = world(lengths=(5,), max_num_seqs=1)
    job.submit_group()
    job.submit_group()
    job.run_for(1.0)
    job.abort(job.standalone)
    assert job.now == pytest.approx(5.0)
    assert job.replicas.aborted_responses == 1


def test_rejected_requests_move_to_another_replica():
    job = world("separate_async", lengths=(10,), trainer_devices=1, rollout_devices=1)
    job.submit_group()
    job.submit_group()
    assert job.replicas.loads() == [1, 1]
    job.run_for(4.0)
    job.replicas.routed = list(job.standalone)
    job.reject(job.hybrid)
    job.run_for(1.5)
    assert job.replicas.loads() == [0, 2]


def test_responses_that_may_not_go_on_end_with_what_they_have():
    job = world(lengths=(10,), partial_rollout=False)
    group = job.submit_group()
    job.run_for(4.0)
    ended: list[int] = []
    job.on_group = ended.append
    job.truncate(job.standalone)
    assert ended == [group]
    assert job.tokens[group] == pytest.approx(4.0)


def test_loads_count_what_runs_waits_and_is_parked():
    pool = replicas(2, pace=(1.0, 1.0))  # one slot each
    submit(pool, 3, 3, 3, replica=0)
    pool.close([1])
    submit(pool, 2, replica=1)
    assert pool.loads() == [3, 1]
    pool.run(3.5)
    assert pool.loads() == [2, 1]
    pool.abort(4.0, [0])
    assert pool.loads() == [0, 1]
    assert len(pool.open([1])) == 1
    assert pool.loads() == [0, 0]
