"""What the timeline shows of a run, and what a click tells."""

from __future__ import annotations

import gzip
import json

import pytest
from timeline_page import CHART, click_at, first_bubble, open_timeline, place_of, still, view
from web_browser import SIZES

MODES = ("colocate_async", "fully_async", "separate_async", "sync")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_sample_trace(visitor, samples, artifacts, mode, scheme):
    visitor.page.emulate_media(color_scheme=scheme)
    page = open_timeline(visitor, f"{samples}/timeline?run={mode}")
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        still(page)
        page.screenshot(path=artifacts / f"timeline-{mode}-{scheme}-{width}.png")
        box = page.locator(".tl-chart").bounding_box()
        assert box["y"] + box["height"] <= height
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_window_shows_its_spans(visitor, samples, artifacts):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async&from=180&to=190&table=1")
    page.locator(".tl-table tbody tr").first.wait_for()
    rows = page.locator(".tl-table tbody tr").all_inner_texts()
    assert any(row.startswith("trainer") and "update_actor" in row for row in rows)
    trained = page.evaluate(
        """() => {
            const chart = document.querySelector(".rl-timeline").rlChart;
            const answer = chart.data.answers[0], a = answer.arrays;
            const lane = chart.meta.lanes.findIndex((lane) => lane.id === "trainer/rank0");
            for (const s of answer.lane.get(lane)) {
                if (chart.meta.states[a.series_state[s]].label !== "update_actor") continue;
                for (let i = a.item_bounds[s]; i < a.item_bounds[s + 1]; i++) {
                    const middle = answer.from_s + a.item_start[i] + a.item_length[i] / 2;
                    if (middle > 182 && middle < 188) return middle;
                }
            }
        }"""
    )
    x, y = place_of(page, "trainer/rank0", trained)
    page.mouse.move(x, y)
    tip = page.locator(".tl-tip")
    tip.wait_for()
    assert "update_actor: " in tip.inner_text()
    page.screenshot(path=artifacts / "timeline-window.png")


def test_the_canvas_is_as_sharp_as_the_screen(browser, samples):
    context = browser.new_context(viewport={"width": 1280, "height": 800}, device_scale_factor=2)
    page = context.new_page()
    page.goto(f"{samples}/timeline?run=sync")
    page.wait_for_selector(".rl-timeline[data-ready='1']")
    canvas = page.locator(".tl-canvas")
    assert canvas.evaluate("(c) => c.width / c.getBoundingClientRect().width") == pytest.approx(2)
    context.close()


def test_a_bubble_tells_its_cause(visitor, samples, artifacts):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async&from=150&to=240")
    bubble = first_bubble(page, "staleness_quota")
    middle = bubble["start"] + bubble["length"] / 2
    detail = click_at(page, bubble["lane"], middle, bubble["row"])
    text = detail.inner_text()
    assert "The rollouter has used up its staleness quota." in text
    assert "staleness samples" in text
    assert "max required samples" in text
    assert "paused: staleness_quota" in text  # what the rollouter did meanwhile
    still(page)
    page.screenshot(path=artifacts / "timeline-bubble.png")
    assert "pick=" in page.url


def test_a_link_shows_the_same_view_and_selection(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async&from=150&to=240")
    bubble = first_bubble(page, "wait_samples")
    click_at(page, bubble["lane"], bubble["start"] + bubble["length"] / 2, bubble["row"])
    page.locator(".tl-detail").get_by_role("button", name="Zoom to it").click()
    still(page)
    window, heading = view(page), page.locator(".tl-detail h2").inner_text()
    address = page.url
    page.goto("about:blank")
    page = open_timeline(visitor, address)
    page.locator(".tl-detail").wait_for()
    assert page.locator(".tl-detail h2").inner_text() == heading
    assert view(page) == pytest.approx(window, abs=1e-3)


def test_a_replica_opens_into_single_requests(visitor, samples, artifacts):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async&from=178&to=196")
    _, y = place_of(page, "replica1", 180)
    left = page.locator(".tl-canvas").bounding_box()["x"]
    page.mouse.click(left + 60, y)
    still(page)
    assert "lane=replica1" in page.url
    lane = page.evaluate(f"{CHART}.meta.lanes.findIndex((l) => l.id === 'requests:replica1')")
    asked = page.evaluate(
        f"""() => {{
            const answer = {CHART}.data.answers[0];
            const s = answer.lane.get({lane})[0];
            return answer.from_s + answer.arrays.item_start[answer.arrays.item_bounds[s]]
                + answer.arrays.item_length[answer.arrays.item_bounds[s]] / 2;
        }}"""
    )
    row = page.evaluate(
        f"{CHART}.data.answers[0].arrays.series_row[{CHART}.data.answers[0].lane.get({lane})[0]]"
    )
    detail = click_at(page, "requests:replica1", asked, row)
    assert "request id" in detail.inner_text()
    assert "response tokens" in detail.inner_text()
    page.screenshot(path=artifacts / "timeline-requests.png")


def test_groups_collapse_into_one_row(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async")
    before = page.evaluate(f"{CHART}.layout.height")
    y = page.evaluate(
        f"""() => {{
            const row = {CHART}.layout.rows.find((r) => r.group && r.group.id === "trainer");
            return {CHART}.canvas.getBoundingClientRect().top + {CHART}.rowTop(row) + 8;
        }}"""
    )
    left = page.locator(".tl-canvas").bounding_box()["x"]
    page.mouse.click(left + 60, y)
    still(page)
    assert "shut=trainer" in page.url
    assert page.evaluate(f"{CHART}.layout.height") < before
    assert page.evaluate(f"{CHART}.data.answers[0].group.get('trainer').lanes") == 1


def test_the_table_is_sorted_and_taken_along(visitor, samples, tmp_path):
    page = open_timeline(visitor, f"{samples}/timeline?run=sync&from=150&to=190")
    page.get_by_role("button", name="What the view holds").click()
    table = page.locator(".tl-table")
    table.locator("tbody tr").first.wait_for()
    table.get_by_role("button", name="longest gap").click()
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("longest gap")
    with page.expect_download() as download:
        table.get_by_role("link", name="Download as CSV").click()
    download.value.save_as(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().startswith("lane,row,state,intervals")


def test_the_visible_slice_opens_in_perfetto(visitor, samples, tmp_path):
    page = open_timeline(visitor, f"{samples}/timeline?run=sync&from=150&to=190")
    with page.expect_download() as download:
        page.get_by_role("link", name="Perfetto").click()
    download.value.save_as(tmp_path / "slice.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "slice.json.gz").read_bytes()))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"update_actor", "wait_samples"} <= {event["name"] for event in spans}
    assert all(event["ts"] < 190e6 and event["ts"] + event["dur"] > 150e6 for event in spans)
