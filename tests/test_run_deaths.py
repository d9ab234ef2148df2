"""Stalls and deaths: who died, who only followed, and what the user is told."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rlinsight.runs import stall
from rlinsight.runs.deaths import Death, DeathWatch
from rlinsight.runs.live_state import Event, LiveState
from rlinsight.runs.processes import Process, find, is_alive
from rlinsight.runs.ray_log import DeadActor, dead_actors
from rlinsight.runs.supervise import Outcome
from rlinsight.trace.process import Process as Recorder
from rlinsight.trace.writer import node_name

S = 1_000_000_000


def test_console_output_is_progress_only_until_something_is_recorded(tmp_path):
    console = tmp_path / "console.log"
    console.write_text("loading\n")
    watch = stall.StallWatch(console)
    time.sleep(0.1)
    watch.note(0)
    assert watch.quiet_s() < 0.1
    watch.note(3)
    time.sleep(0.1)
    console.write_text("loading\nwaiting for samples\n")
    watch.note(0)
    assert watch.quiet_s() >= 0.1


def test_a_stall_lists_the_longest_silent_lane_first():
    events = {
        "trainer": Event(10 * S, None, "wait_samples", 4),
        "replica0": Event(2 * S, 5 * S, "generation request", None),
    }
    assert stall.explanation(61.2, events, 65 * S) == [
        "no progress for 61 s; last event per lane:",
        "  replica0: generation request, ended 60 s ago",
        "  trainer: wait_samples of step 4, open for 55 s",
    ]


def recorder(pid, *, ended=None, flushed=0, node=None):
    return Recorder(node or node_name(), pid, flushed_ns=flushed, ended_ns=ended)


def test_a_process_that_is_gone_without_ending_its_recording_has_died():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    state = LiveState(processes=[recorder(child.pid), recorder(os.getpid())])
    state.note("replica0", Event(S, None, "wake", None), (node_name(), child.pid))
    watch = DeathWatch()
    watch.look(state)
    assert watch.deaths == []
    child.kill()
    child.communicate()
    watch.look(state)
    watch.look(state)
    assert [(death.pid, death.lanes) for death in watch.deaths] == [(child.pid, ("replica0",))]
    assert "`replica0`: " in watch.deaths[0].sentence(state.last_events, 8 * S)
    assert "died; last event: wake, open for 7 s" in watch.deaths[0].sentence(
        state.last_events, 8 * S
    )


def test_a_process_that_ended_its_recording_has_not_died():
    state = LiveState(processes=[recorder(2**22 + 1, ended=5 * S)])
    watch = DeathWatch()
    watch.look(state)
    assert watch.deaths == []


@pytest.mark.parametrize("clock_s", [0, -600, 600])
def test_a_process_of_another_node_is_dead_when_it_is_silent(monkeypatch, clock_s):
    """Whatever the clock of that node says: it may be minutes behind ours, or ahead."""
    watch = DeathWatch()
    for second in range(0, 61, 10):
        monkeypatch.setattr(time, "time_ns", lambda second=second: (1000 + second) * S)
        silent = recorder(1, node="far", flushed=(1000 + clock_s) * S)
        alive = recorder(2, node="far", flushed=(1000 + clock_s + second) * S)
        watch.look(LiveState(processes=[silent, alive]))
        assert [death.pid for death in watch.deaths] == ([1] if second > 30 else [])
    assert watch.deaths[0].heard_ns == 1000 * S


def death(name, seen, heard=None, pid=1):
    heard = seen if heard is None else heard
    return Death((name,), "n0", pid, "p", int(heard * S), int(seen * S))


def cause(deaths, *, accused=(), recorders=4, ended=()):
    """Who ended a run with so many recorders, some of which closed theirs at given times."""
    watch = DeathWatch()
    watch.deaths = deaths
    processes = [recorder(i, ended=int(at * S)) for i, at in enumerate(ended)]
    processes += [recorder(100 + i) for i in range(recorders)]
    found = watch.cause(accused, LiveState(processes=processes), 110 * S)
    return [name for d in found for name in d.lanes or (d.what,)]


def test_the_first_to_die_is_the_cause_and_the_rest_follow():
    assert cause([death("replica0", 100.0), death("trainer", 103.0)]) == ["replica0"]


def test_of_those_found_gone_together_the_longest_silent_came_first():
    together = [death("trainer", 100.0, heard=99.9), death("replica0", 100.0, heard=98.2)]
    assert cause(together) == ["replica0"]


def test_who_dies_after_the_program_began_to_end_was_ended_by_it():
    deaths = [death("replica0", 100.0), death("replica1", 100.2)]
    assert cause(deaths, ended=[20, 99.5]) == []
    assert cause(deaths, ended=[20, 100.1]) == ["replica0"]


def test_when_all_die_at_once_nobody_is_blamed():
    deaths = [death("replica0", 100.0), death("replica1", 100.1), death("trainer", 100.2)]
    assert cause(deaths, recorders=3) == []
    assert len(cause(deaths, recorders=8)) == 3


def test_whom_ray_accuses_is_believed():
    deaths = [death("replica0", 100.0, pid=7), death("trainer", 100.0, pid=8)]
    assert cause(deaths, recorders=2, accused=[DeadActor("TaskRunner", 8)]) == ["trainer"]
    assert cause(deaths, recorders=2, accused=[DeadActor("Other", 9)]) == ["ray::Other"]


def test_a_run_that_lost_a_process_and_its_last_steps_has_failed_whatever_its_exit_code():
    lost = [death("replica1", 100.0)]
    broken = Outcome(exit_code=0, steps=3, planned_steps=200, deaths=lost)
    assert broken.command_exit_code == 1
    assert broken.sentence() == "broke off at step 3 of 200"


@pytest.mark.parametrize(
    ("number", "said"), [(9, "killed by SIGKILL"), (40, "killed by signal 40")]
)
def test_a_run_killed_by_any_signal_says_by_which(number, said):
    assert Outcome(exit_code=-number).sentence() == said
    assert Outcome(exit_code=-number).command_exit_code == 128 + number


@pytest.mark.parametrize(("steps", "planned"), [(3, 200), (None, None), (12, 12)])
def test_a_run_that_ends_early_but_whole_has_not_failed(steps, planned):
    """As when the data ends before the steps do."""
    outcome = Outcome(exit_code=0, steps=steps, planned_steps=planned)
    assert outcome.command_exit_code == 0
    assert outcome.sentence() == "finished"
    assert outcome.is_short == (steps == 3)


def test_deaths_are_news_only_while_most_of_the_run_goes_on():
    watch = DeathWatch()
    state = LiveState(processes=[recorder(2**22 + i) for i in (1, 2)] + [recorder(os.getpid())])
    watch.deaths = [death("replica0", time.time() - 10)]
    assert [d.lanes for d in watch.news(state)] == [("replica0",)]
    assert watch.news(state) == []
    watch.look(state)  # two of three are gone
    watch.deaths = [death("replica1", time.time() - 10)]
    assert watch.news(state) == []


RAY_SAYS = """
(TaskRunner pid=9533) ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing \
this task.
\tclass_name: WorkerDict
\tactor_id: 39e55663252cbfef74728a4601000000
\tpid: 9628
\tnamespace: 76721640-ab77-436b-b396-9c02047a1c16
\tip: 192.0.2.2
The actor is dead because its worker process has died. Worker exit type: {kind} Worker exit detail
"""


def test_ray_names_the_actor_that_crashed(tmp_path):
    console = tmp_path / "console.log"
    assert dead_actors(console) == []
    console.write_text("x" * 2**21 + RAY_SAYS.format(kind="SYSTEM_ERROR") * 3)
    assert dead_actors(console) == [DeadActor("WorkerDict", 9628)]
    console.write_text(RAY_SAYS.format(kind="INTENDED_SYSTEM_EXIT"))
    assert dead_actors(console) == []


def test_a_pid_that_is_used_again_is_another_process():
    found = find(os.getpid())
    assert is_alive(found)
    assert not is_alive(Process(found.pid, found.started - 1))
