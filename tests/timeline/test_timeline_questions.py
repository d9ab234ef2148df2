"""What the timeline answers when it is asked: details, search, table, slice and forms."""

from __future__ import annotations

import json

import numpy as np
import pytest
from timeline_index import number_of, whole
from timelines import S, Timeline

from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline import export, find, meta, table
from rlinsight.webapp.timeline.build import build
from rlinsight.webapp.timeline.detail import detail
from rlinsight.webapp.timeline.first import first_rows
from rlinsight.webapp.timeline.index import NULL, load, save
from rlinsight.webapp.timeline.query import UnusableError, lane_numbers, view_of
from rlinsight.webapp.timeline.window import View, answer
from rlinsight.webapp.timeline.wire import pack, unpack

# -- details -------------------------------------------------------------------------------


def test_an_interval_is_told_with_its_record(index, run):
    asked = {"lane": str(number_of(index, "rollouter")), "row": "0", "t": "7"}
    found = detail(index, run, asked)
    assert (found["kind"], found["start_s"], found["end_s"]) == ("span", 6.0, 10.0)
    assert found["fields"] == {"reason": "staleness_quota"}
    assert found["evidence"]["cause"] == "staleness_quota"


def test_a_bubble_is_told_with_the_evidence_of_its_cause(index, run):
    asked = {"lane": str(number_of(index, "bubbles:rollouter")), "t": "8"}
    found = detail(index, run, asked)
    assert found["name"] == "bubble.staleness_quota"
    evidence = found["evidence"]
    gauge = {"name": "staleness_samples", "lane": "rollouter", "at_start": 6.0, "at_end": 6.0}
    assert gauge in evidence["gauges"]
    assert {
        "lane": "rollouter",
        "states": [{"label": "paused: staleness_quota", "share": 1.0}],
    } in (evidence["meanwhile"])
    assert evidence["slots"] == [{"lane": "replica0", "mean_in_flight": 0.0, "capacity": 4}]


def test_a_request_is_told_from_either_of_its_parts(index, run):
    lane = str(number_of(index, "requests:replica0"))
    for t in ("0.5", "2"):
        found = detail(index, run, {"lane": lane, "row": "0", "t": t})
        assert found["fields"]["request_id"] == "r1"
        assert found["fields"]["tokens_per_s"] == 2.0


def test_an_open_interval_has_no_end(index, run):
    found = detail(index, run, {"lane": str(number_of(index, "trainer")), "t": "22"})
    assert (found["end_s"], found["duration_s"], found["so_far_s"]) == (None, None, 4.0)


def test_several_within_the_tolerance_are_counted(busy, run):
    asked = {"lane": str(number_of(busy, "trainer")), "t": "1", "tol": "0.1"}
    found = detail(busy, run, asked)
    assert found["nearby"]["states"][0]["intervals"] == 101
    assert found["nearby"]["states"][0]["longest_gap_s"] == 0.001


def test_nothing_is_nothing(index, run):
    found = detail(index, run, {"lane": str(number_of(index, "rollouter")), "t": "2"})
    assert found["kind"] == "nothing"


# -- search, table, slice ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "window"),
    [
        ({"step": "1"}, (10.0, 20.0)),
        ({"version": "0"}, (0.0, 9.0)),
        ({"version": "1"}, (9.0, 24.0)),
        ({"step": "7"}, (None, None)),
        ({"activity": "checkp", "at": "1"}, (20.0, 24.0)),
        ({"activity": "UPDATE", "at": "5"}, (14.0, 20.0)),
        ({"activity": "UPDATE", "at": "14", "dir": "-1"}, (4.0, 10.0)),
        ({"activity": "nothing of the kind"}, (None, None)),
    ],
)
def test_where_to_jump(index, asked, window):
    found = find.find(index, asked)
    assert (found["from_s"], found["to_s"]) == window


def test_the_next_interval_of_a_lane(index):
    asked = {"lane": str(number_of(index, "trainer")), "row": "1", "at": "4"}
    assert find.find(index, asked)["from_s"] == 10.0


def test_the_table_is_exact_in_any_window(index):
    rows = table.rows(index, View(3 * S, 12 * S, 1, (number_of(index, "trainer"),)))
    wait = next(row for row in rows if row["state"] == "wait_samples")
    assert (wait["covered_s"], wait["longest_gap_s"], wait["intervals"]) == (3.0, 6.0, 2)
    assert wait["share"] == pytest.approx(1 / 3)


def test_a_spreadsheet_is_given_no_formula(tmp_path):
    line = Timeline(tmp_path)
    line.span("=HYPERLINK(1)", "tool", 0, 1)
    made = build(line.open())
    text = table.csv(table.rows(made, whole(made, "=HYPERLINK(1)")))
    assert text.splitlines()[1].startswith("'=HYPERLINK(1)")


def test_the_slice_is_a_chrome_trace(index):
    document = json.loads(export.chrome_trace(index, 4 * S, 5 * S))
    events = document["traceEvents"]
    spans = [e for e in events if e["ph"] == "X" and e["name"] == "update_actor" and e["pid"] == 2]
    assert {(e["ts"], e["dur"]) for e in spans} == {(4e6, 6e6)}
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"trainer/rank0", "replica0 requests · 1"} <= names
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in spans} <= threads


def test_in_the_slice_an_open_interval_begins_and_does_not_end(index):
    events = json.loads(export.chrome_trace(index, 21 * S, 22 * S))["traceEvents"]
    open_ = [e for e in events if e["ph"] == "B"]
    assert [(e["name"], e["ts"]) for e in open_] == [("checkpoint", 20e6)]


def test_a_slice_of_too_much_says_what_to_do(index, monkeypatch):
    monkeypatch.setattr(export, "MOST_EVENTS", 3)
    with pytest.raises(RlinsightError, match="zoom in"):
        export.chrome_trace(index, 0, 24 * S)


# -- questions and forms -------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [{"from": "x"}, {"from": "nan"}, {"to": "1e99"}, {"from": "5", "to": "5"}, {"lanes": "1;2"}],
)
def test_what_cannot_be_used_is_refused(index, given):
    with pytest.raises(UnusableError, match="expected"):
        view_of(index, given)


def test_lanes_are_numbers_and_ranges(index):
    assert lane_numbers(index, "2,0-1,2") == (2, 0, 1)
    assert lane_numbers(index, f"1-{10**9}")[-1] == len(index.names.lanes) - 1


def test_an_answer_comes_back_from_its_bytes():
    header, arrays = unpack(pack({"a": [1]}, {"x": np.arange(3, dtype=np.uint8), "y": np.eye(2)}))
    assert header == {"a": [1]}
    assert arrays["x"].tolist() == [0, 1, 2]
    assert arrays["y"].tolist() == [1, 0, 0, 1]


def test_the_first_view_asks_for_the_lanes_that_are_drawn(index):
    asked = first_rows(index, {"shut": "trainer", "lane": "replica0"})
    shown = [index.names.lanes[i] for i in lane_numbers(index, asked["lanes"])]
    assert asked["groups"] == "trainer"
    assert "trainer" not in {lane.group for lane in shown}
    assert "requests:replica0" in {lane.id for lane in shown}


def test_meta_is_json_and_names_every_state(index, run):
    found = json.loads(json.dumps(meta.meta(index, run), allow_nan=False))
    assert [state["name"] for state in found["states"]] == list(index.names.states)
    assert (found["steps"], found["versions"]) == ([0, 1], [0, 1])
    assert {panel["id"] for panel in found["panels"]} == {"staleness", "running"}


def test_an_index_on_disk_answers_the_same(index, tmp_path):
    save(index, tmp_path / "index")
    again = load(tmp_path / "index")
    view = View(0, 24 * S, 700, tuple(range(len(index.names.lanes))), groups=("trainer",))
    assert answer(again, view) == answer(index, view)
    assert again.names == index.names
    assert (again.arrays.step[again.arrays.step != NULL] >= 0).all()
