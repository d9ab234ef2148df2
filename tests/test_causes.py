"""Each cause of a bubble, on a timeline of 20 s whose answer is computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from timelines import TOPOLOGY, S, Timeline

import rlinsight

#: TOPOLOGY of `timelines`: trainer device n0/0, rollout device n1/0 with replica0, capacity 4.


@pytest.fixture
def t(tmp_path):
    timeline = Timeline(tmp_path / "t")
    timeline.step(1, 0, 20)
    return timeline


def causes(timeline: Timeline, owner: str) -> dict[str, float]:
    totals = timeline.open().analyze().bubbles.totals
    return {c.cause: c.device_seconds for c in totals if c.owner == owner}


def busy_trainer(t: Timeline, *gaps: tuple[float, float]) -> None:
    """The trainer updates over 0-20 except in `gaps`, where it waits for samples."""
    at = 0.0
    for start, end in gaps:
        t.span("trainer", "update_actor", at, start)
        t.span("trainer", "wait_samples", start, end)
        at = end
    t.span("trainer", "update_actor", at, 20)


def test_wait_samples_when_nothing_else_explains_it(t):
    busy_trainer(t, (4, 10))
    t.gen(0, 20)
    assert causes(t, "trainer") == {"wait_samples": 6.0}


def test_validation_on_the_replicas_makes_the_trainer_wait(t):
    busy_trainer(t, (4, 10))
    t.gen(0, 5)
    t.gen(5, 8, validate=True)
    t.gen(8, 20)
    assert causes(t, "trainer") == {"validation": 3.0, "wait_samples": 3.0}


def test_validation_by_the_trainer_leaves_the_replica_without_work(t):
    t.span("trainer", "update_actor", 0, 10)
    t.span("trainer", "validate", 10, 16)
    t.span("trainer", "update_actor", 16, 20)
    t.gen(0, 11)
    t.gen(15, 20)
    assert causes(t, "rollouter") == {"validation": 4.0}


@pytest.mark.parametrize("reason", ["staleness_quota", "queue_full", "drain"])
def test_a_pause_of_the_rollouter_keeps_its_recorded_reason(t, reason):
    busy_trainer(t)
    t.gen(0, 10)
    t.span("rollouter", "paused", 9, 14, attrs={"reason": reason})
    t.gen(14, 20)
    assert causes(t, "rollouter") == {reason: 4.0}


def test_a_pause_without_a_reason_is_not_given_one(t):
    busy_trainer(t)
    t.gen(0, 10)
    t.span("rollouter", "paused", 10, 20)
    assert causes(t, "rollouter") == {"paused": 10.0}


def test_a_lost_resume_is_the_part_behind_the_sync(t):
    busy_trainer(t)
    t.gen(0, 5)
    t.span("rollouter", "paused", 5, 18, attrs={"reason": "staleness_quota"})
    t.writer.marker("lost_resume", lane="rollouter", ts_ns=9 * S)
    t.gen(18, 20)
    assert causes(t, "rollouter") == {"staleness_quota": 4.0, "lost_resume": 9.0}


def test_weight_sync_makes_the_other_side_wait(t):
    t.span("trainer", "update_actor", 0, 10)
    t.span("trainer", "weight_sync", 10, 13)
    t.span("trainer", "wait_samples", 13, 15)
    t.span("trainer", "update_actor", 15, 20)
    t.gen(0, 10)
    t.span("replica0", "weight_sync", 11, 14)  # 10-11 and the trainer's 13-14 are waits
    t.gen(14, 20)
    report = t.open().analyze()
    totals = {(c.owner, c.cause): c.device_seconds for c in report.bubbles.totals}
    assert totals == {
        ("rollouter", "weight_sync_wait"): 1.0,
        ("trainer", "weight_sync_wait"): 1.0,
        ("trainer", "wait_samples"): 1.0,
    }


@pytest.mark.parametrize("validator", ["replica0", "replica1"])
def test_who_validates_decides_whether_the_trainer_waits(tmp_path, validator):
    """Validation 10-16, by the rollouter's replica or by a hybrid one on the trainer's device."""
    hybrid = rlinsight.Lane("replica1", role="replica", devices=["n0/0"], engine_kind="hybrid")
    topology = TOPOLOGY.merge(rlinsight.Topology(lanes=[hybrid]))
    t = Timeline(tmp_path / "t", topology)
    t.span("trainer", "update_actor", 0, 10)
    t.span("trainer", "validate", 10, 16)
    t.gen(11, 15, validator, validate=True)
    t.span("trainer", "update_actor", 16, 20)
    waits = {} if validator == "replica1" else {"validation": 6.0}
    assert causes(t, "trainer") == waits


def produced(t: Timeline, times: list[float], at: float) -> None:
    for i, time in enumerate(times):
        t.trained(f"{at}/{i}", at, (10, 90), 1, produced_ns=round(time * S))


def test_the_long_tail_of_a_batch(t):
    """A batch of 8 is three quarters there at 12, and its last sample comes at 18."""
    busy_trainer(t, (10, 18))
    produced(t, [5, 6, 7, 8, 9, 12, 15, 18], at=18)
    for _ in range(4):
        t.gen(0, 12)  # all 4 slots are full until 12
    t.gen(12, 18)  # then a single request runs
    t.gen(18, 20)
    assert causes(t, "trainer") == {"wait_samples": 2.0, "long_tail": 6.0}


def test_what_is_taken_during_a_wait_belongs_to_it_and_not_to_the_one_before(t):
    """Waits 0-4 and 6-18; the second takes its first samples soon after the first has ended."""
    busy_trainer(t, (0, 4), (6, 18))
    produced(t, [1, 2, 3, 4], at=4)  # the last quarter comes from 3 on
    for time in (6, 6.5, 7, 8, 9, 12, 15, 18):  # and here from 12 on
        produced(t, [time], at=time)
    t.gen(0, 18)
    t.gen(18, 20)
    assert causes(t, "trainer") == {"wait_samples": 9.0, "long_tail": 7.0}


def with_hybrids(path: Path, count: int) -> Timeline:
    """One step with a wait over 10-18, whose last quarter is missing from 12 on."""
    lent = [
        rlinsight.Lane(f"hybrid{i}", role="replica", engine_kind="hybrid", capacity=4)
        for i in range(count)
    ]
    t = Timeline(path, TOPOLOGY.merge(rlinsight.Topology(lanes=lent)))
    t.step(1, 0, 20)
    busy_trainer(t, (10, 18))
    produced(t, [5, 6, 7, 8, 9, 12, 15, 18], at=18)
    return t


@pytest.mark.parametrize("sleeping", [0, 3])
def test_full_replicas_are_no_long_tail_and_sleeping_hybrids_no_empty_slots(tmp_path, sleeping):
    t = with_hybrids(tmp_path / "t", sleeping)
    for _ in range(4):
        t.gen(0, 20)
    assert causes(t, "trainer") == {"wait_samples": 8.0}


def test_a_hybrid_replica_that_answers_has_slots(tmp_path):
    """From 12 on both replicas have one request, 2 of 8 slots; from 15 on 1 of 4."""
    t = with_hybrids(tmp_path / "t", 1)
    for _ in range(3):
        t.gen(0, 12)
    t.gen(12, 15, "hybrid0")
    t.gen(0, 18)
    assert causes(t, "trainer") == {"wait_samples": 2.0, "long_tail": 6.0}


def test_a_last_sample_that_is_in_no_engine_any_more_is_a_tail(t):
    """Its answer came at 12; a tool or the reward takes until 18."""
    busy_trainer(t, (10, 18))
    produced(t, [5, 6, 7, 8, 9, 12, 12, 18], at=18)
    for _ in range(4):
        t.gen(0, 12)
    assert causes(t, "trainer") == {"wait_samples": 2.0, "long_tail": 6.0}


def test_a_request_that_ends_before_it_begins_is_no_free_slot(t):
    busy_trainer(t, (10, 18))
    produced(t, [5, 6, 7, 8, 9, 12, 15, 18], at=18)
    for _ in range(2):
        t.gen(0, 20)
    t.gen(17, 11)
    assert causes(t, "trainer") == {"wait_samples": 8.0}


def test_an_empty_engine_is_no_tail_while_the_rollouter_pauses(t):
    busy_trainer(t, (10, 18))
    produced(t, [5, 6, 7, 8, 9, 12, 12, 18], at=18)
    for _ in range(4):
        t.gen(0, 12)
    t.span("rollouter", "paused", 12, 18, attrs={"reason": "staleness_quota"})
    assert causes(t, "trainer") == {"wait_samples": 8.0}


def test_sleeping_until_the_next_poll(tmp_path):
    """All samples are there at 9, the buffer polls at 8 and 10."""
    topology = rlinsight.Topology(lanes=[rlinsight.Lane("replay_buffer", role="queue")]).merge(
        TOPOLOGY
    )
    t = Timeline(tmp_path / "t", topology, mode="separate_async")
    t.step(1, 0, 20)
    busy_trainer(t, (4, 10))
    produced(t, [3, 5, 7, 9], at=10)
    for start in (4, 6, 8):
        t.span("replay_buffer", "other:poll", start, start + 2)
    for _ in range(4):
        t.gen(0, 20)
    assert causes(t, "trainer") == {"wait_samples": 5.0, "poll_interval": 1.0}


def test_the_driver_doing_something_else(t):
    t.span("trainer", "other:dispatch_prompts", 0, 3)
    t.span("trainer", "update_actor", 3, 20)
    assert causes(t, "trainer") == {"driver": 3.0}


def test_a_silent_replica_has_no_prompts_and_an_unheard_one_is_unknown(t):
    busy_trainer(t)
    t.gen(0, 12)
    assert causes(t, "rollouter") == {"no_prompts": 8.0}


def test_a_replica_heard_before_the_window_is_known_to_be_silent_in_it(t):
    busy_trainer(t)
    t.gen(0, 4)
    totals = t.open().analyze(window=(5 * S, 20 * S)).bubbles.totals
    assert {c.cause: c.device_seconds for c in totals} == {"no_prompts": 15.0}


def test_before_the_first_step_engines_are_being_started(tmp_path):
    t = Timeline(tmp_path / "t")
    t.span("trainer", "init", 0, 8)
    t.step(1, 10, 20)
    t.gen(12, 20)
    ledger = t.open().analyze(window=(0, 20 * S)).pools["rollouter"].ledger
    assert ledger == {"unattributed": 10.0, "generate": 8.0, "bubble.no_prompts": 2.0}


def test_without_request_records_the_cause_is_unknown(t):
    busy_trainer(t)
    assert causes(t, "rollouter") == {"unknown": 20.0}


def test_a_request_parked_at_the_gate_does_not_generate(t):
    """It arrives at 2, is let through at 6 and ends at 10."""
    busy_trainer(t)
    t.gen(2, 10, request_id="parked")
    t.span("replica0", "paused", 1, 6, attrs={"reason": "weight_sync"})
    t.writer.marker("gate_wait", lane="replica0", ts_ns=6 * S, attrs={"request_id": "parked"})
    report = t.open().analyze()
    assert report.pools["rollouter"].ledger == {
        "generate": 4.0,
        "bubble.weight_sync_wait": 5.0,
        "bubble.no_prompts": 11.0,
    }


def test_a_hybrid_replica_that_is_never_lent_explains_no_wait(tmp_path):
    """Its gate closes at 1 for good; the trainer waits 2-8 for what other devices generate."""
    topology = rlinsight.Topology(
        devices=[
            rlinsight.Device("n0/0", node="n0", index=0, kind="cpu", pool="trainer"),
            rlinsight.Device("n1/0", node="n1", index=0, kind="cpu", pool="rollout"),
        ],
        lanes=[
            rlinsight.Lane("trainer", role="trainer"),
            rlinsight.Lane("replica0", role="replica", devices=["n0/0"], engine_kind="hybrid"),
            rlinsight.Lane("replica1", role="replica", devices=["n1/0"], engine_kind="standalone"),
        ],
    )
    t = Timeline(tmp_path / "t", topology, mode="separate_async")
    t.step(1, 0, 20)
    busy_trainer(t, (2, 8))
    t.span("replica0", "paused", 1, None, attrs={"rejects": False})
    t.gen(0, 20, lane="replica1")
    assert causes(t, "trainer") == {"wait_samples": 6.0}


def test_hybrid_devices_are_accounted_as_what_they_did(tmp_path):
    """The trainer's device generates 4-8 while the driver waits, and trains 8-20."""
    topology = rlinsight.Topology(
        devices=[rlinsight.Device("n0/0", node="n0", index=0, kind="cpu", pool="trainer")],
        lanes=[
            rlinsight.Lane("trainer", role="trainer"),
            rlinsight.Lane("replica0", role="replica", devices=["n0/0"], engine_kind="hybrid"),
        ],
    )
    t = Timeline(tmp_path / "t", topology, mode="colocate_async")
    t.step(1, 0, 20)
    busy_trainer(t, (2, 8))
    t.gen(4, 8)
    report = t.open().analyze()
    assert report.pools["trainer"].ledger == {
        "train.update_actor": 14.0,
        "generate": 4.0,
        "bubble.wait_samples": 2.0,
    }
    assert (report.run.hybrid_replicas, report.run.standalone_replicas) == (1, 0)


def test_bubbles_have_sizes_owners_and_evidence(t):
    busy_trainer(t, (4, 10))
    t.span("trainer/rank0", "update_actor", 10, 14, attrs={"mini_batches": "2"})
    t.gen(0, 20)
    t.writer.counter("queue_depth", 7, lane="queue", ts_ns=3 * S)
    t.writer.counter("queue_depth", 0, lane="queue", ts_ns=9 * S)
    report = t.open().analyze()
    (bubble,) = report.bubbles.largest
    assert (bubble.owner, bubble.cause) == ("trainer", "wait_samples")
    assert (bubble.start_ns, bubble.end_ns, bubble.device_seconds) == (4 * S, 10 * S, 6.0)
    assert report.bubbles.mini_batch_s == 2.0
    assert bubble.mini_batches == pytest.approx(3.0)
    assert bubble.lanes == ("trainer", "trainer/rank0")
    assert bubble.evidence == {"queue_depth": 7.0}
    (total,) = report.bubbles.totals
    assert (total.bubbles, total.share, total.longest_s) == (1, pytest.approx(0.3), 6.0)


def test_two_devices_idle_together_are_one_bubble(tmp_path):
    topology = rlinsight.Topology(
        devices=[
            rlinsight.Device(f"n0/{i}", node="n0", index=i, kind="cpu", pool="trainer")
            for i in range(2)
        ],
        lanes=[rlinsight.Lane("trainer", role="trainer")],
    )
    t = Timeline(tmp_path / "t", topology)
    t.step(1, 0, 20)
    busy_trainer(t, (4, 10))
    (bubble,) = t.open().analyze().bubbles.largest
    assert bubble.device_seconds == 12.0
    assert (bubble.end_ns - bubble.start_ns) / S == 6.0
