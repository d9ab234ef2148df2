"""What a window of the timeline holds: intervals, buckets, marks, groups and gauges."""

from __future__ import annotations

import numpy as np
import pytest
from timeline_index import drawn, number_of, whole
from timelines import S, Timeline

import rlinsight
from rlinsight.webapp.timeline import gauges, overview
from rlinsight.webapp.timeline.build import build
from rlinsight.webapp.timeline.panels import panels
from rlinsight.webapp.timeline.window import MOST_BYTES, View, answer, frame_of
from rlinsight.webapp.timeline.wire import unpack

# -- windows -------------------------------------------------------------------------------


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
