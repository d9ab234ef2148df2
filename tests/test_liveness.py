"""A run that stands still gets an alarm, and a run that works gets none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.analyzers.health.liveness import liveness
from rlinsight.trace.process import Process

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent / "data/cases.json").read_text())["cases"]
}
HOUR = 3600.0
TWO = rlinsight.Topology(
    devices=TOPOLOGY.devices,
    lanes=[*TOPOLOGY.lanes, rlinsight.Lane("replica1", role="replica", capacity=4)],
)


def look(t: Timeline, now: float, **options):
    trace = t.open()
    tables = {
        name: trace.table(name).collect()
        for name in ("spans", "requests", "samples", "markers", "counters")
    }
    return liveness(**tables, topology=TWO, now_ns=round(now * S), **options)


def steps(t: Timeline, count: int, width: float = 60) -> float:
    for i in range(count):
        t.step(i + 1, i * width, (i + 1) * width)
        t.span("trainer", "update_actor", i * width + width / 2, (i + 1) * width)
    return count * width


def kinds(found) -> list[str]:
    return [alarm.kind for alarm in found.alarms]


@pytest.fixture
def t(tmp_path):
    return Timeline(tmp_path / "t", TWO)


def test_a_run_that_works_has_no_alarm_and_its_last_events(t):
    end = steps(t, 5)
    t.span("trainer", "step", end, None)
    t.gen(end - 20, end + 10)
    found = look(t, end + 30)
    assert not found.forbids_tuning
    last = {event.lane: (event.what, event.ts_ns / S) for event in found.last_events}
    assert last == {"trainer": ("step began", end), "replica0": ("request", end + 10)}


def test_case_wedged_run_waits_in_thousands_of_polls_for_an_empty_buffer(t):
    given = CASES["wedged-run"]["input"]
    end = steps(t, 5)
    now = end + given["idle_hours"] * HOUR
    poll = (now - end) / given["wait_iterations"]
    for i in range(0, given["wait_iterations"], 100):
        t.span("trainer", "wait_samples", end + i * poll, end + (i + 1) * poll)
    t.writer.counter("queue_depth", given["buffer_size"], lane="message_queue", ts_ns=S)
    found = look(t, now, needed={"queue_depth": 8})
    assert CASES["wedged-run"]["expect"]["verdict"] == "liveness_alarm"
    assert (kinds(found), found.forbids_tuning) == (["no_progress"], True)
    assert found.alarms[0].for_s == pytest.approx(3.7 * HOUR)


def test_case_near_full_buffer_stall(t):
    case = CASES["near-full-buffer-stall"]
    given = case["input"]
    end = steps(t, given["step"])
    for i, depth in enumerate([0, 40, given["needed"], 3, *given["buffer"]]):
        t.writer.counter("queue_depth", depth, lane="message_queue", ts_ns=round((end + i) * S))
    t.gen(end, end + given["hours"] * HOUR - 10)
    found = look(t, end + given["hours"] * HOUR, needed={"queue_depth": given["needed"]})
    (alarm,) = found.alarms
    assert alarm.kind == "near_full_stall"
    assert alarm.for_s == pytest.approx(given["hours"] * HOUR, abs=10)
    assert alarm.evidence == {"needed": 128, "lowest": 125.0, "highest": 127.0}
    assert found.forbids_tuning


def test_what_an_update_needs_is_read_from_the_configuration(tmp_path):
    """64 prompts in two updates between syncs; the buffer of the validation is another."""
    config = {
        "data": {"train_batch_size": 64},
        "trainer": {"v1": {"separate_async": {"parameter_sync_step": 2}}},
    }
    t = Timeline(tmp_path / "t", TWO, mode="separate_async", config=config)
    end = steps(t, 5)
    for lane, depth in (("replay_buffer", 31), ("replay_buffer/val", 30)):
        t.writer.counter("replay_finished", depth, lane=lane, ts_ns=round(end * S))
    t.gen(end, end + 3600)
    alarms = t.open().analyze().liveness.alarms
    (alarm,) = (one for one in alarms if one.kind == "near_full_stall")
    assert (alarm.lane, alarm.evidence["needed"]) == ("replay_buffer", 32)


def test_a_buffer_that_is_emptied_in_time_is_no_stall(t):
    end = steps(t, 5)
    for i, depth in enumerate([125, 127, 128, 0]):
        t.writer.counter("queue_depth", depth, lane="message_queue", ts_ns=round((end + i) * S))
    assert kinds(look(t, end + 200, needed={"queue_depth": 128})) == []


@pytest.mark.parametrize(("open_for", "alarms"), [(350, []), (400, ["open_phase"])])
def test_an_open_phase_is_compared_with_six_times_its_own_median(t, open_for, alarms):
    for i in range(5):
        t.step(i + 1, 100 * i, 100 * (i + 1))
        t.span("trainer", "update_actor", 100 * i, 100 * i + 60)
    t.span("trainer", "step", 500, None)
    t.span("trainer", "update_actor", 510, None)
    t.gen(500, 900)  # the rollout goes on
    found = look(t, 510 + open_for)
    assert kinds(found) == alarms
    if alarms:
        assert found.alarms[0].evidence["activity"] == "update_actor"
        assert found.alarms[0].limit_s == pytest.approx(360)


def test_a_start_that_never_ends_is_given_half_an_hour(t):
    t.span("trainer", "init", 0, None)
    assert kinds(look(t, 1700)) == []
    assert kinds(look(t, 1900)) == ["open_phase"]


def test_the_floor_can_be_lowered_for_small_runs(t):
    end = steps(t, 5, width=2)
    t.span("trainer", "wait_samples", end, None)
    assert kinds(look(t, end + 40)) == []
    assert kinds(look(t, end + 40, floor_s=10.0)) == ["no_progress"]
    assert kinds(look(t, end + 40, floor_s=10.0, ended=True)) == []


def test_a_dead_engine_that_nobody_notices(t):
    for i in range(10):
        t.gen(10 * i, 10 * i + 10)
    t.writer.request(request_id="open1", lane="replica0", submit_ns=90 * S)
    t.writer.request(request_id="open2", lane="replica0", submit_ns=99 * S)
    for i in range(100):
        t.gen(10 * i, 10 * i + 10, "replica1")
    found = look(t, 1000)
    (alarm,) = found.alarms
    assert (alarm.kind, alarm.lane, alarm.for_s) == ("dead_engine", "replica0", 900.0)
    assert alarm.evidence == {"open_requests": 2, "answered_elsewhere": 90}
    assert "replica0" in alarm.sentence


def test_when_all_engines_are_silent_together_none_is_dead(t):
    for lane in ("replica0", "replica1"):
        t.gen(0, 10, lane)
        t.writer.request(request_id=f"open-{lane}", lane=lane, submit_ns=10 * S)
    assert kinds(look(t, 5000)) == ["no_progress"]


def process(pid: int, flushed: float, ended: float | None = None, node: str = "n0") -> Process:
    return Process(
        node, pid, started_ns=1, flushed_ns=round(flushed * S),
        ended_ns=None if ended is None else round(ended * S),
    )  # fmt: skip


def test_a_process_that_falls_silent_while_others_go_on_is_dead(t):
    steps(t, 2)
    found = look(t, 120, processes=[process(1, 120), process(2, 40), process(3, 30, ended=30)])
    assert [(a.kind, a.evidence["pid"], a.for_s) for a in found.alarms] == [
        ("dead_process", 2, 80.0)
    ]


def test_processes_that_were_all_cut_off_together_are_not_dead_one_by_one(t):
    steps(t, 2)
    assert kinds(look(t, 5000, ended=True, processes=[process(1, 120), process(2, 119)])) == []


def test_processes_that_fell_silent_as_a_run_ended_well_are_not_dead(t):
    """Steps 0-120; at 120 verl ends its workers, while the samplers of devices go on to 170."""
    steps(t, 2)
    silent = [process(1, 170, ended=170), process(2, 120)]
    assert kinds(look(t, 170, ended=True, succeeded=True, processes=silent)) == []
    assert kinds(look(t, 170, ended=True, processes=silent)) == ["dead_process"]
    lost = [process(1, 170, ended=170), process(2, 40)]
    assert kinds(look(t, 170, ended=True, succeeded=True, processes=lost)) == ["dead_process"]


def test_another_nodes_clock_may_be_off_but_a_node_that_is_gone_is_noticed(t):
    here, there = process(1, 1000), process(3, 900, node="n1")
    assert kinds(look(t, 1000, processes=[here, there])) == []
    gone = process(3, 500, node="n1")
    assert kinds(look(t, 1000, processes=[here, gone])) == ["dead_process"]


def test_an_empty_trace_has_no_alarm(t):
    found = look(t, 10)
    assert (found.alarms, found.last_events) == ((), ())
