"""Timelines of one emulated replica, computed by hand, and what holds for every load."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinsight.runs.emulated.device_model import Job, Replica
from rlinsight.runs.emulated.laws import ReplicaCost


def cost(capacity: int = 8, kv: int = 10_000, per_response: float = 0.0) -> ReplicaCost:
    """Prefill 2 s, a step 1 s with one running."""
    return ReplicaCost(
        capacity=capacity,
        kv_tokens=kv,
        prefill_s=2.0,
        prefill_per_token_s=0.0,
        step_s=1.0 - per_response,
        step_per_response_s=per_response,
    )


def timeline(replica: Replica, until: float = 1e6) -> list[tuple[float, str, int]]:
    return [(event.at, event.kind, event.job.need) for event in replica.advance(until)]


def test_the_first_token_comes_with_the_prefill():
    replica = Replica(cost())
    replica.submit(10.0, Job(prompt=5, need=4))
    # prefill 10-12 gives the first of four tokens, the others take a second each
    assert timeline(replica) == [(12.0, "first_token", 4), (15.0, "finished", 4)]


def test_one_token_needs_no_step():
    replica = Replica(cost())
    replica.submit(0.0, Job(prompt=5, need=1))
    assert timeline(replica) == [(2.0, "finished", 1)]


def test_a_step_takes_longer_the_more_run():
    replica = Replica(cost(per_response=0.5))
    replica.submit(0.0, Job(prompt=1, need=3))
    replica.submit(0.0, Job(prompt=1, need=5))
    # 2-5: two steps of 1.5 s for both; then two more of 1 s for the longer one
    assert [(at, need) for at, kind, need in timeline(replica) if kind == "finished"] == [
        (pytest.approx(5.0), 3),
        (pytest.approx(7.0), 5),
    ]


def test_what_exceeds_the_capacity_waits_in_order():
    replica = Replica(cost(capacity=1))
    for need in (3, 2, 4):
        replica.submit(0.0, Job(prompt=1, need=need))
    assert (replica.running, len(replica.waiting)) == (1, 2)
    finished = [(at, need) for at, kind, need in timeline(replica) if kind == "finished"]
    assert finished == [(4.0, 3), (7.0, 2), (12.0, 4)]


def test_a_late_look_changes_nothing():
    late, often = Replica(cost(per_response=0.25)), Replica(cost(per_response=0.25))
    seen = []
    for replica in (late, often):
        for need in (3, 9, 4):
            replica.submit(0.0, Job(prompt=1, need=need))
    for tick in range(200):
        seen += timeline(often, tick / 7)
    assert timeline(late, 199 / 7) == [(pytest.approx(at), kind, need) for at, kind, need in seen]


def test_an_abort_gives_back_the_tokens_so_far():
    replica = Replica(cost(capacity=2))
    for need in (10, 20, 5):
        replica.submit(0.0, Job(prompt=1, need=need))
    # prefilled at 2; at 5.5 both have 1 + 3 tokens, the third still waits
    _, aborted = replica.abort(5.5)
    assert [(job.need, tokens) for job, tokens in aborted] == [(10, 4), (20, 4), (5, 0)]
    assert (replica.running, len(replica.waiting), replica.next_event()) == (0, 0, None)


def test_a_full_cache_sends_back_the_last_admitted():
    # each holds 40 at admission; headroom 16 a request: 40 + 40 + 16 = 96 fits into 100
    replica = Replica(cost(kv=100))
    replica.submit(0.0, Job(prompt=40, need=30))
    replica.submit(0.0, Job(prompt=40, need=31))
    events = timeline(replica)
    # from 2 on they hold 82 and take 2 more a second: full at 2 + 9
    assert events[2] == (pytest.approx(11.0), "preempted", 31)
    finished = {need: at for at, kind, need in events if kind == "finished"}
    assert finished[30] == pytest.approx(2 + 29)
    # the other has 10 tokens, is prefilled again once there is room, and loses none of them
    resumed = next(at for at, kind, _ in events if kind == "resumed")
    assert resumed == pytest.approx(31 + 2)
    assert finished[31] == pytest.approx(resumed + 31 - 11)


def test_a_request_alone_runs_whatever_it_takes():
    replica = Replica(cost(kv=10))
    replica.submit(0.0, Job(prompt=50, need=5))
    assert timeline(replica)[-1] == (6.0, "finished", 5)


LOADS = st.lists(
    st.tuples(st.floats(0, 5), st.integers(1, 30), st.integers(1, 40)), min_size=1, max_size=25
)


@given(loads=LOADS, capacity=st.integers(1, 6), kv=st.integers(20, 300), slow=st.floats(0, 0.9))
def test_every_request_ends_once_with_all_its_tokens(loads, capacity, kv, slow):
    replica = Replica(cost(capacity=capacity, kv=kv, per_response=slow))
    events, now = [], 0.0
    for gap, prompt, need in loads:
        now += gap
        events += replica.submit(now, Job(prompt=prompt, need=need))
        assert replica.running <= capacity
    events += replica.advance(1e9)
    finished = [event.job for event in events if event.kind == "finished"]
    assert sorted(job.need for job in finished) == sorted(need for _, _, need in loads)
    assert all(a.at <= b.at for a, b in itertools.pairwise(events))
    assert all(event.running <= capacity for event in events)
    assert replica.running == 0
    assert not replica.waiting


@given(loads=LOADS, at=st.floats(0, 200), slow=st.floats(0, 0.9))
def test_an_abort_loses_no_request_and_gives_no_token_twice(loads, at, slow):
    replica = Replica(cost(capacity=4, per_response=slow))
    events = []
    for _, prompt, need in loads:
        events += replica.submit(0.0, Job(prompt=prompt, need=need))
    more, aborted = replica.abort(at)
    finished = [event.job for event in events + more if event.kind == "finished"]
    assert len(finished) + len(aborted) == len(loads)
    assert all(0 <= tokens < job.need for job, tokens in aborted)
    assert not {id(job) for job in finished} & {id(job) for job, _ in aborted}
