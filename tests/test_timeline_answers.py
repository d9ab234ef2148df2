"""What the timeline answers, of traces that read as timelines."""

from __future__ import annotations

import json

import numpy as np
import pytest
from timelines import TOPOLOGY, S, Timeline

import rlinsight
from rlinsight.errors import RlinsightError
from rlinsight.webapp.timeline import export, find, gauges, meta, overview, table
from rlinsight.webapp.timeline.build import build
from rlinsight.webapp.timeline.detail import detail
from rlinsight.webapp.timeline.first import first_rows
from rlinsight.webapp.timeline.index import NULL, load, save
from rlinsight.webapp.timeline.panels import panels
from rlinsight.webapp.timeline.query import UnusableError, lane_numbers, view_of
from rlinsight.webapp.timeline.window import MOST_BYTES, View, answer, frame_of
from rlinsight.webapp.timeline.wire import pack, unpack


class Run:
    """Of a run of the served folder, what the answers need."""

    id, name, live, stamp = "run", "run", False, "1"

    def __init__(self, trace: rlinsight.Trace) -> None:
        self.trace = trace


@pytest.fixture
def run(tmp_path) -> Run:
    """Two steps: wait, train; the rollouter pauses while the trainer trains; then one that hangs.

    replica0 works on two requests over 0-4 and one over 4-6.
    """
    line = Timeline(tmp_path / "trace")
    for number, start in enumerate((0, 10)):
        line.step(number, start, start + 10)
        line.span("trainer", "wait_samples", start, start + 4, step=number)
        line.span("trainer", "update_actor", start + 4, start + 10, step=number, param_version=1)
        line.span("trainer/rank0", "update_actor", start + 4, start + 10, step=number)
    line.span("rollouter", "paused", 6, 10, attrs={"reason": "staleness_quota"})
    line.span("rollouter", "validate", 12, 13)
    line.span("trainer", "checkpoint", 20, None)
    line.gen(0, 4, first_token_ns=S, response_tokens=6, version_start=0)
    line.gen(0, 4, finish="abort")
    line.gen(4, 6, finish="length")
    line.writer.counter("staleness_samples", 2, lane="rollouter", ts_ns=0)
    line.writer.counter("staleness_samples", 6, lane="rollouter", ts_ns=5 * S)
    line.writer.counter("max_required_samples", 6, lane="rollouter", ts_ns=0)
    line.writer.marker("param_sync", lane="replica0", param_version=0, ts_ns=0)
    line.writer.marker("param_sync", lane="replica0", param_version=1, ts_ns=9 * S)
    line.writer.marker("pause", lane="rollouter", reason="staleness_quota", ts_ns=6 * S)
    line.writer.marker("end", lane="trainer", ts_ns=24 * S)
    return Run(line.open())


@pytest.fixture
def index(run):
    return build(run.trace)


def number_of(index, lane_id: str) -> int:
    number = index.lane_number(lane_id)
    assert number is not None
    return number


def drawn(index, view: View) -> dict[str, list[tuple[str, int, float, float]]]:
    """Lane -> (state, row, start, end) of all plain intervals, in seconds of the trace."""
    header, arrays = unpack(answer(index, view))
    found: dict[str, list[tuple[str, int, float, float]]] = {}
    bounds = arrays["item_bounds"]
    for i, lane in enumerate(arrays["series_lane"]):
        for item in range(bounds[i], bounds[i + 1]):
            start = header["from_s"] + float(arrays["item_start"][item])
            end = start + float(arrays["item_length"][item])
            state = index.names.states[arrays["series_state"][i]]
            row = (state, int(arrays["series_row"][i]), round(start, 3), round(end, 3))
            found.setdefault(index.names.lanes[lane].id, []).append(row)
    return {lane: sorted(rows, key=lambda row: row[2]) for lane, rows in found.items()}


def whole(index, *lanes: str, **more) -> View:
    numbers = tuple(number_of(index, lane) for lane in lanes)
    return View(0, index.names.extent_ns, 1000, numbers, **more)


# -- lanes ---------------------------------------------------------------------------------


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


# -- windows -------------------------------------------------------------------------------


@pytest.fixture
def busy(tmp_path):
    """A lane with 4000 intervals of 1 ms, 2 ms apart, except for a gap of 1 s at 4 s."""
    line = Timeline(tmp_path)
    for i in range(4000):
        at = i * 0.002 + (1.0 if i >= 2000 else 0.0)
        line.span("trainer", "update_actor", at, at + 0.001)
    return build(line.open())


def cells_of(index, view: View):
    header, arrays = unpack(answer(index, view))
    assert len(arrays["cell_bounds"]) == 2
    return header["frames"]["cells"], arrays


def test_many_intervals_become_buckets_that_keep_time_and_gap(busy):
    frame, arrays = cells_of(busy, whole(busy, "trainer"))
    share, gap = (arrays[name] / 65535 * frame["bucket_s"] for name in ("cell_share", "cell_gap"))
    assert share[:-1].sum() == pytest.approx(4.0 - frame["bucket_s"] / 4, abs=frame["bucket_s"])
    gap_at = [b for b in range(frame["count"]) if b not in set(arrays["cell_bucket"].tolist())]
    missing = len(gap_at) * frame["bucket_s"]
    assert missing == pytest.approx(1.0, abs=2 * frame["bucket_s"])
    assert gap[arrays["cell_bucket"] < gap_at[0] - 1] == pytest.approx(0.001, rel=0.01)


def test_nothing_is_fused_when_the_view_comes_closer(busy):
    view = View(round(3.99 * S), round(4.01 * S), 1000, (number_of(busy, "trainer"),))
    rows = drawn(busy, view)["trainer"]
    assert len(rows) == 5
    assert {round(end - start, 3) for _, _, start, end in rows} == {0.001}


def test_a_bucket_is_at_least_a_pixel_and_at_most_two(busy):
    for pixels in (1, 100, 999, 4000):
        frame = frame_of(View(0, busy.names.extent_ns, pixels), busy.names.extent_ns)
        assert 1 <= (1 << frame.level) / (busy.names.extent_ns / pixels) < 2.001


def test_an_answer_stays_below_its_limit(tmp_path):
    ranks = [rlinsight.Lane(f"trainer/rank{i}", role="trainer_rank", rank=i) for i in range(200)]
    line = Timeline(tmp_path, rlinsight.Topology([], ranks))
    for lane in ranks:
        for i in range(100):
            line.span(lane.id, "update_actor", i, i + 0.5)
            line.span(lane.id, "reward", i + 0.5, i + 0.9)
    crowded = build(line.open())
    view = View(0, crowded.names.extent_ns, 8000, tuple(range(200)))
    assert len(answer(crowded, view)) <= MOST_BYTES


def test_marks_close_together_are_counted_not_lost(tmp_path):
    line = Timeline(tmp_path)
    for i in range(500):
        line.writer.marker("abort", lane="replica0", ts_ns=i * 1000)
    line.span("trainer", "update_actor", 0, 100)
    many = build(line.open())
    _, arrays = unpack(answer(many, whole(many, "replica0")))
    assert arrays["marker_count"].tolist() == [500]


def test_versions_steps_and_validation_come_with_the_window(index):
    _, arrays = unpack(answer(index, View(9 * S + 1, 15 * S, 600)))
    assert arrays["version_number"].tolist() == [1]
    assert arrays["step_number"].tolist() == [0, 1]
    assert (arrays["band_start"] + 9).tolist() == pytest.approx([12.0])


def test_a_group_is_the_mean_of_its_lanes(index):
    view = View(0, 20 * S, 1, groups=("devices/trainer", "trainer"))
    header, arrays = unpack(answer(index, view))
    trainer = header["groups"][1]
    assert trainer["lanes"] == 1  # the rank stands for the group
    names = [index.names.states[state] for state in trainer["states"]]
    share = arrays["group_share"].reshape(-1, header["frames"]["groups"]["count"])
    total = (
        share[len(header["groups"][0]["states"]) :].sum() * header["frames"]["groups"]["bucket_s"]
    )
    assert names == ["update_actor"]
    assert total == pytest.approx(12.0)


def test_a_dense_lane_shows_what_takes_most(index):
    number = number_of(index, "trainer/rank0")
    found = overview.dense(index, [number], frame_of(View(0, 24 * S, 3), 24 * S))
    assert found["dense_state"].shape[0] == 1
    states = {index.names.states[s] for s in found["dense_state"][0] if s != overview.NOTHING}
    assert states == {"update_actor"}


# -- gauges --------------------------------------------------------------------------------


def gauge(index, name: str, lane: str) -> int:
    return index.names.gauges.index((name, lane))


def test_a_gauge_keeps_extremes_and_the_mean_over_time(index):
    low, high, mean = gauges.envelope(
        index, gauge(index, "staleness_samples", "rollouter"), 0, 10 * S, 2
    )
    assert (low.tolist(), high.tolist(), mean.tolist()) == ([2, 6], [6, 6], [4, 6])


def test_before_its_first_value_a_gauge_is_not_known(tmp_path):
    line = Timeline(tmp_path)
    line.span("trainer", "update_actor", 0, 10)
    line.writer.counter("queue_depth", 3, lane="q", ts_ns=5 * S)
    made = build(line.open())
    low, _, mean = gauges.envelope(made, gauge(made, "queue_depth", "q"), 0, 2 * S, 5)
    assert np.isnan(low).tolist() == [True, True, False, False, False]
    assert mean[2:].tolist() == [3, 3, 3]


def test_requests_in_flight_are_a_gauge_of_the_replica(index):
    number = gauge(index, gauges.IN_FLIGHT, "replica0")
    assert gauges.mean_value(index, number, 0, 2 * S, 4).tolist() == [2, 2, 1, 0]


def test_a_limit_is_drawn_beside_its_gauge(index):
    found, arrays = panels(index, frame_of(View(0, 24 * S, 100), 24 * S))
    staleness = next(panel for panel in found if panel["id"] == "staleness")
    assert [line["limit"] for line in staleness["lines"]] == [False, True]
    assert len(arrays["panel_values"]) == 3 * sum(len(panel["lines"]) for panel in found)


def test_many_lanes_of_a_gauge_are_summed_up(tmp_path):
    line = Timeline(tmp_path)
    line.span("trainer", "update_actor", 0, 10)
    for i in range(6):
        line.writer.counter("running_requests", i, lane=f"replica{i}", ts_ns=i * S)
    made = build(line.open())
    found, arrays = panels(made, frame_of(View(0, 10 * S, 1), 10 * S))
    assert [line["label"] for line in found[0]["lines"]] == ["sum of 6"]
    assert arrays["panel_values"][1].max() == 15


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


def test_a_trace_that_cannot_be_analyzed_is_drawn_without_devices(run, monkeypatch):
    def fails(*_, **__):
        raise RlinsightError("no way")

    monkeypatch.setattr(type(run.trace), "analyze", fails)
    made = build(run.trace)
    assert made.names.remark is not None
    assert "no way" in made.names.remark
    assert drawn(made, whole(made, "trainer"))["trainer"][0][0] == "step"
