"""Following a run: growing streams, idle time so far, and what is shown of it."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from live_streams import stream
from rich.console import Console

from rlinsight.runs.coverage import Coverage
from rlinsight.runs.live import LiveTrace
from rlinsight.runs.live_state import LiveState
from rlinsight.runs.progress import Progress, duration
from rlinsight.trace.process import Process as Recorder
from rlinsight.trace.topology import Lane, Topology
from rlinsight.trace.writer import TraceWriter

S = 1_000_000_000


def span(activity, start, end, lane="trainer", step=None):
    end_ns = None if end is None else end * S
    return {
        "start_ns": start * S, "end_ns": end_ns, "activity": activity, "lane": lane, "step": step,
    }  # fmt: skip


# -- a trace that grows --------------------------------------------------------------------


def test_a_stream_that_is_cut_anywhere_is_read_as_it_grows_and_nothing_twice(tmp_path):
    data, ends = stream("spans", [[span("step", i, i + 1)] for i in range(3)], closed=True)
    path = tmp_path / "live" / "spans-n0-1.arrows"
    path.parent.mkdir()
    live, seen = LiveTrace(tmp_path), 0
    for cut in (*range(0, len(data), 7), len(data)):
        path.write_bytes(data[:cut])
        seen += live.poll()
        assert seen == sum(end <= cut for end in ends)
    assert seen == 3
    assert live.state.used_lanes == {("n0", 1): {"trainer"}}


def gauge(name, value):
    row = {"ts_ns": 1, "name": name, "lane": "l", "value": value}
    return stream("counters", [[row]])[0]


FOREIGN = {
    "text": b"x" * 100,
    "no flatbuffer": b"\xff\xff\xff\xff" + b"\x08\0\0\0" + b"y" * 50,
    "another table": gauge("x", 1.0),
    "a gauge that is no number": gauge("queue_depth", float("nan")),
}


@pytest.mark.parametrize("name", ["spans-n0-1.arrows", "counters-n0-1.arrows"])
@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_stream_does_not_end_the_run_that_is_watched(tmp_path, name, content):
    live = LiveTrace(tmp_path)
    (tmp_path / "live").mkdir()
    for times in (1, 2):
        (tmp_path / "live" / name).write_bytes(content * times)
        assert live.poll() == 0
    with TraceWriter(tmp_path, lane="trainer") as writer:
        writer.span("step", start_ns=S, end_ns=2 * S)
    assert live.poll() == 1


def test_a_live_trace_counts_events_but_not_samples_of_gauges(tmp_path):
    live = LiveTrace(tmp_path)
    assert live.poll() == 0
    with TraceWriter(tmp_path, lane="trainer") as writer:
        writer.declare_lane(Lane("trainer", role="trainer"))
        writer.span("step", start_ns=S, end_ns=2 * S, step=4)
        writer.counter("queue_depth", 17)
        writer.metric("timing_s/step", 1.5, step=4, ts_ns=2 * S)
        writer.metric("perf/throughput", 900.0, step=4)
        writer.flush()
        assert live.poll() == 3
        assert live.poll() == 0
        writer.counter("queue_depth", 18)
        writer.flush()
        assert live.poll() == 0
    assert (live.state.step, live.state.queue_depth) == (4, 18)
    assert live.state.tokens_per_s_per_device == 900.0
    assert [lane.id for lane in live.state.topology.lanes] == ["trainer"]
    assert live.state.last_events["trainer"].sentence(5 * S) == "step of step 4, ended 3 s ago"
    assert live.state.lanes_of(live.state.processes[0]) == ("trainer",)


# -- idle time so far ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closed", "opened", "until", "since", "covered"),
    [
        ([(0, 4), (2, 6)], [], 10, 0, 6),  # overlapping
        ([(0, 4), (6, 8)], [], 10, 0, 6),  # apart
        ([(6, 8), (0, 4), (3, 7)], [], 10, 0, 8),  # joined by a later one
        ([(0, 4)], [6], 10, 0, 8),  # one still open
        ([(0, 8)], [2, 6], 10, 0, 10),  # open ones begin within a closed one
        ([(0, 4), (5, 7)], [6], 10, 0, 9),
        ([(0, 4), (6, 8)], [], 7, 2, 3),  # only from 2 to 7
        ([(0, 2)], [1], 9, 4, 5),  # open since before the window
        ([], [], 10, 0, 0),
    ],
)
def test_coverage_is_the_union(closed, opened, until, since, covered):
    coverage = Coverage()
    for key, start in enumerate(opened):
        coverage.open(key, start)
    for start, end in closed:
        coverage.close(("closed", start), start, end)
    assert coverage.covered_ns(until, since_ns=since) == covered


def test_an_interval_seen_open_is_not_counted_again_when_it_closes():
    coverage = Coverage()
    coverage.open("a", 2)
    assert coverage.covered_ns(10, since_ns=0) == 8
    coverage.close("a", 2, 5)
    assert coverage.covered_ns(10, since_ns=0) == 3


def request(name, lane, submit, end=None, attempt=1):
    return {
        "request_id": name, "attempt": attempt, "lane": lane, "submit_ns": submit * S,
        "end_ns": None if end is None else end * S,
    }  # fmt: skip


def with_replicas(*kinds):
    lanes = [Lane(f"replica{i}", role="replica", engine_kind=k) for i, k in enumerate(kinds)]
    return LiveState(processes=[Recorder("n0", 1, topology=Topology(lanes=tuple(lanes)))])


def test_idle_ratios_begin_with_the_first_step():
    state = with_replicas("standalone", "standalone")
    assert state.trainer_idle(10 * S) is None
    state.take_steps([span("step", 10, 20)])
    state.take_waits([span("wait_samples", 10, 14), span("wait_samples", 20, None)])
    assert state.trainer_idle(30 * S) == pytest.approx(14 / 20)
    # replica0: busy 5-15 and from 25 on; replica1: never
    state.take_requests([request("a", "replica0", 5, 15), request("b", "replica0", 25)])
    assert state.rollout_idle(30 * S) == pytest.approx(1 - (10 / 20 + 0) / 2)


def test_hybrid_replicas_do_not_count_beside_standalone_ones():
    state = with_replicas("hybrid", "standalone")
    state.take_steps([span("step", 0, 10)])
    state.take_requests([request("a", "replica0", 0, 10), request("b", "replica1", 0, 4)])
    assert state.rollout_idle(10 * S) == pytest.approx(0.6)
    alone = with_replicas("hybrid")
    alone.take_steps([span("step", 0, 10)])
    alone.take_requests([request("a", "replica0", 0, 10)])
    assert alone.rollout_idle(10 * S) == pytest.approx(0.0)


def test_the_pace_is_that_of_the_last_steps():
    state = LiveState()
    for step, at in enumerate([0, 100, 110, 120, 130, 140, 150], start=1):
        state.take_metrics([{"key": "timing_s/step", "value": 1.0, "step": step, "ts_ns": at * S}])
    assert state.seconds_per_step() == pytest.approx(10.0)
    assert state.step == 7


# -- what is shown -------------------------------------------------------------------------


def shown(state, *, total_steps=None, calls=1):
    text = io.StringIO()
    console = Console(file=text, width=200)
    with Progress(console, total_steps=total_steps, console_log=Path("console.log")) as progress:
        for _ in range(calls):
            progress.update(state)
    return text.getvalue()


def test_before_anything_records_the_user_is_told_where_to_look():
    assert "no process records yet; output in console.log" in shown(LiveState())


def test_the_start_up_phase_names_the_lanes_that_have_appeared():
    state = with_replicas("standalone", "standalone")
    assert "starting for 0 s: 2 lanes: replica0, replica1" in shown(state)


def test_outside_a_terminal_there_is_one_line_per_step():
    state = LiveState(step=3, tokens_per_s_per_device=812.4, queue_depth=5)
    now = time.time_ns()
    state.first_step_ns = now - 100 * S
    state.take_waits([{"start_ns": now - 100 * S, "end_ns": now - 70 * S}])
    state.step_ends_ns.extend([now - 20 * S, now])
    text = shown(state, total_steps=8, calls=5)
    assert text == "step 3/8, 812 tokens/s per device, trainer idle 30%, queue 5, ETA 1 min 40 s\n"


def test_what_is_not_known_is_left_out():
    assert shown(LiveState(step=1)) == "step 1\n"


def test_a_terminal_gets_one_line_that_is_kept_current():
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    state = LiveState(step=2, tokens_per_s_per_device=10.0)
    with Progress(console, total_steps=4, console_log=Path("c")) as progress:
        progress.update(state)
        progress.say(["something that must stay"])
        time.sleep(0.4)
    assert "step 2/4" in text.getvalue()
    assert "something that must stay" in text.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (3600, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_durations_have_two_units(seconds, text):
    assert duration(seconds) == text
