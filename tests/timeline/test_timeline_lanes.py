"""Which lanes the timeline has, and what is drawn on them."""

from __future__ import annotations

from timeline_index import drawn, whole
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline.build import build
from rlinsight.webapp.timeline.window import View, answer
from rlinsight.webapp.timeline.wire import unpack


def test_lanes_are_grouped_and_hybrid_replicas_kept_apart(tmp_path):
    hybrid = rlinsight.Lane("h", role="replica", devices=["n0/0"], engine_kind="hybrid")
    line = Timeline(tmp_path, rlinsight.Topology(TOPOLOGY.devices, [*TOPOLOGY.lanes, hybrid]))
    line.span("undeclared", "tool", 0, 1)
    groups = [(lane.group, lane.id) for lane in build(line.open()).names.lanes]
    assert [one for one in groups if not one[1].startswith(("bubbles:", "requests:"))] == [
        ("trainer", "trainer"),
        ("trainer", "trainer/rank0"),
        ("rollouter", "rollouter"),
        ("hybrid", "h"),
        ("standalone", "replica0"),
        ("others", "undeclared"),
        ("devices", "device:n0/0"),
        ("devices", "device:n1/0"),
    ]


def test_phases_are_below_their_step_and_open_intervals_stay_open(index):
    assert drawn(index, whole(index, "trainer"))["trainer"] == [
        ("step", 0, 0.0, 10.0),
        ("wait_samples", 1, 0.0, 4.0),
        ("update_actor", 1, 4.0, 10.0),
        ("step", 0, 10.0, 20.0),
        ("wait_samples", 1, 10.0, 14.0),
        ("update_actor", 1, 14.0, 20.0),
        ("checkpoint", 0, 20.0, 24.0),
    ]
    _, arrays = unpack(answer(index, whole(index, "trainer")))
    assert arrays["item_open"].sum() == 1


def test_a_pause_has_its_reason(index):
    rows = drawn(index, whole(index, "rollouter"))["rollouter"]
    assert rows[0] == ("paused:staleness_quota", 0, 6.0, 10.0)


def test_a_replica_generates_while_it_has_requests_and_each_has_a_slot(index):
    found = drawn(index, whole(index, "replica0", "requests:replica0"))
    assert found["replica0"] == [("generate", 0, 0.0, 6.0)]
    assert sorted(found["requests:replica0"]) == [
        ("request.abort", 1, 0.0, 4.0),
        ("request.decode", 0, 1.0, 4.0),
        ("request.first_token", 0, 0.0, 1.0),
        ("request.length", 0, 4.0, 6.0),
    ]


def test_requests_of_an_undeclared_lane_have_their_slots_too(tmp_path):
    line = Timeline(tmp_path)
    line.gen(0, 4, "ghost")
    index = build(line.open())
    assert [row[0] for row in drawn(index, whole(index, "ghost"))["ghost"]] == ["generate"]
    assert drawn(index, whole(index, "requests:ghost"))["requests:ghost"]


def test_devices_are_tiled_by_the_ledger(index):
    rows = drawn(index, whole(index, "device:n0/0"))["device:n0/0"]
    assert [start for _, _, start, _ in rows[1:]] == [end for _, _, _, end in rows[:-1]]
    assert (rows[0][2], rows[-1][3]) == (0.0, 24.0)


def test_an_empty_trace_has_a_timeline_without_content(tmp_path):
    empty = build(Timeline(tmp_path).open())
    header, arrays = unpack(answer(empty, View(0, S, 800, tuple(range(len(empty.names.lanes))))))
    assert header["frames"]["cells"]["count"] == 1
    assert len(arrays["series_lane"]) == 0


def test_what_takes_no_time_is_not_lost(tmp_path):
    line = Timeline(tmp_path)
    line.span("trainer", "advantage", 5, 5)
    line.span("trainer", "reward", 0, 9)
    made = build(line.open())
    states = {state for state, *_ in drawn(made, whole(made, "trainer"))["trainer"]}
    assert states == {"advantage", "reward"}


def test_a_trace_that_cannot_be_analyzed_is_drawn_without_devices(run, monkeypatch):
    def fails(*_, **__):
        raise RlinsightError("no way")

    monkeypatch.setattr(type(run.trace), "analyze", fails)
    made = build(run.trace)
    assert made.names.remark is not None
    assert "no way" in made.names.remark
    assert drawn(made, whole(made, "trainer"))["trainer"][0][0] == "step"
