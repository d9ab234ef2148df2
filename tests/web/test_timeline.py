"""The timeline as a person uses it: by mouse, by keyboard, by link."""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from pathlib import Path

import pytest
from web_browser import SIZES

import rlinsight

sys.path.insert(0, str(Path(__file__).parent.parent))
from timelines import TOPOLOGY, S, Timeline

MODES = ("colocate_async", "fully_async", "separate_async", "sync")
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>" + "x" * 300,
    "\u05e9\u05dc\u05d5\u05dd \U0001f389 \u202eevil",
    "'\"&amp;%3Cb%3E,~:",
)

CHART = "document.querySelector('.rl-timeline').rlChart"


def open_timeline(visitor, address: str):
    """Open the timeline and wait until its first answer is drawn."""
    page = visitor.open(address, drawn=".rl-timeline[data-ready='1']")
    still(page)
    return page


def until(page, expression: str) -> None:
    """Wait until an expression holds in the page, whose rules forbid the waiting of Playwright."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(50)


def still(page) -> None:
    """Wait until nothing is asked for, nothing moves, and the address is up to date."""
    until(
        page,
        f"!{CHART}.data.busy && {CHART}.view.from === {CHART}.target.from"
        f" && {CHART}.view.to === {CHART}.target.to",
    )
    page.wait_for_timeout(300)


def view(page) -> tuple[float, float]:
    found = page.evaluate(f"{CHART}.target")
    return found["from"], found["to"]


def place_of(page, lane: str, seconds: float, row: int = 0) -> tuple[float, float]:
    """Return where on the page a time of a lane is drawn; the lane is scrolled into sight."""
    x, y = page.evaluate(
        """([name, seconds, row]) => {
            const chart = document.querySelector(".rl-timeline").rlChart;
            const number = chart.meta.lanes.findIndex((lane) => lane.id === name);
            chart.scrollToLane(number);
            chart.wishAndDraw(true);
            const drawn = chart.layout.rows.find((r) => r.lane && r.lane.number === number);
            const box = chart.canvas.getBoundingClientRect();
            const [top, height] = drawn.tops[row];
            return [box.left + chart.x(seconds), box.top + chart.rowTop(drawn) + top + height / 2];
        }""",
        [lane, seconds, row],
    )
    still(page)
    return x, y


def click_at(page, lane: str, seconds: float, row: int = 0):
    page.mouse.click(*place_of(page, lane, seconds, row))
    detail = page.locator(".tl-detail")
    detail.wait_for()
    return detail


def first_bubble(page, cause: str) -> dict[str, float]:
    """Return the longest bubble of a cause on the rollouter's or the trainer's row."""
    return page.evaluate(
        """(cause) => {
            const chart = document.querySelector(".rl-timeline").rlChart;
            const answer = chart.data.answers[0];
            const a = answer.arrays;
            let best = null;
            for (const lane of chart.bubbleLanes.values()) for (const s of answer.lane.get(lane)) {
                if (chart.meta.states[a.series_state[s]].name !== "bubble." + cause) continue;
                for (let i = a.item_bounds[s]; i < a.item_bounds[s + 1]; i++) {
                    if (best && a.item_length[i] <= best.length) continue;
                    best = { lane: chart.meta.lanes[lane].id, row: a.series_row[s],
                             start: answer.from_s + a.item_start[i], length: a.item_length[i] };
                }
            }
            return best;
        }""",
        cause,
    )


# -- looking ------------------------------------------------------------------------------


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


# -- clicking -----------------------------------------------------------------------------


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


# -- moving -------------------------------------------------------------------------------


def test_wheel_and_drag_move_the_view(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=sync&from=150&to=190")
    x, y = place_of(page, "trainer", 170)
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    still(page)
    start, end = view(page)
    assert end - start < 40
    assert start < 170 < end
    page.mouse.wheel(60, 0)
    still(page)
    assert view(page)[0] > start
    start = view(page)[0]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=4)
    page.mouse.up()
    still(page)
    assert view(page)[0] < start
    assert f"from={view(page)[0]:.1f}"[:8] in page.url


def test_a_stretch_is_measured_and_fitted(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=sync&from=150&to=190")
    x0, y = place_of(page, "trainer", 160)
    x1, _ = place_of(page, "trainer", 170)
    page.mouse.move(x0, y)
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(x1, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    still(page)
    measured = page.evaluate(f"{CHART}.state.sel")
    assert measured["to"] - measured["from"] == pytest.approx(10, abs=0.2)
    page.keyboard.press("f")
    still(page)
    assert view(page) == pytest.approx((159.2, 170.8), abs=0.3)
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    still(page)
    whole = page.evaluate(f"{CHART}.meta.duration_s")
    assert view(page) == pytest.approx((0, whole), abs=0.01 * whole)


def test_keys_move_as_in_perfetto(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=sync&from=150&to=190")
    page.locator(".tl-canvas").focus()
    page.keyboard.press("w")
    still(page)
    assert view(page)[1] - view(page)[0] == pytest.approx(28)
    page.keyboard.press("d")
    still(page)
    assert sum(view(page)) / 2 > 170
    for key in ("a", "s"):
        page.keyboard.press(key)
        still(page)
    assert view(page) == pytest.approx((150, 190), abs=2)


def test_steps_and_versions_are_jumped_to(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async")
    page.get_by_label("Go to step").fill("4")
    page.get_by_label("Go to step").press("Enter")
    still(page)
    assert view(page)[0] < 176.39 < 178.48 < view(page)[1]
    page.locator(".tl-canvas").focus()
    page.keyboard.press("]")
    still(page)
    assert page.get_by_label("Go to step").input_value() == "5"
    before = view(page)
    page.keyboard.press(".")
    still(page)
    assert view(page)[0] > before[0]


def test_an_activity_is_searched(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=separate_async")
    page.locator(".tl-canvas").focus()
    page.keyboard.press("/")
    page.keyboard.type("switch_to_trainer")
    page.keyboard.press("Enter")
    detail = page.locator(".tl-detail")
    detail.wait_for()
    assert detail.locator("h2").inner_text() == "switch_to_trainer"
    first = page.evaluate(f"{CHART}.picked.start_s")
    still(page)
    page.locator(".tl-canvas").focus()
    page.keyboard.press("n")
    until(page, f"{CHART}.picked.start_s > {first}")
    page.keyboard.press("Shift+N")
    until(page, f"{CHART}.picked.start_s === {first}")
    assert "find=switch_to_trainer" in page.url
    start, end = view(page)
    assert start < first < end


def test_lanes_and_their_intervals_are_reached_by_keyboard(visitor, samples):
    page = open_timeline(visitor, f"{samples}/timeline?run=fully_async&from=170&to=190")
    page.locator(".tl-canvas").focus()
    status = page.locator(".tl-status")
    for _ in range(9):
        page.keyboard.press("ArrowDown")
        if status.inner_text() == "trainer/rank0":
            break
    assert status.inner_text() == "trainer/rank0"
    page.keyboard.press("Shift+ArrowRight")
    page.locator(".tl-detail").wait_for()
    first = page.evaluate(f"{CHART}.picked.start_s")
    page.keyboard.press("Shift+ArrowRight")
    until(page, f"{CHART}.picked.start_s > {first}")
    assert "trainer/rank0" in page.locator(".tl-detail").inner_text()


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


# -- other traces -------------------------------------------------------------------------


def test_a_live_run_appears_and_grows(visitor, serve, tmp_path, artifacts):
    line = Timeline(tmp_path / "runs" / "grows")
    line.writer.begin("update_actor", lane="trainer", step=0)
    done = threading.Event()

    def train():
        while not done.is_set():
            start_ns = line.writer.now_ns()
            time.sleep(0.2)
            line.writer.span(
                "reward", lane="trainer/rank0", start_ns=start_ns, end_ns=line.writer.now_ns()
            )
            line.writer.flush()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        page = open_timeline(visitor, f"{serve(tmp_path / 'runs')}/timeline?run=grows")
        first = page.evaluate(f"{CHART}.meta.duration_s")
        until(page, f"{CHART}.meta.duration_s > {first + 2}")
        until(page, f"{CHART}.view.to >= {first + 2}")  # the whole run stays in view
        still(page)
        opened = page.evaluate(f"{CHART}.data.answers[0].arrays.item_open.includes(1)")
        assert opened
        page.screenshot(path=artifacts / "timeline-live.png")
    finally:
        done.set()
        thread.join()
        line.writer.close()


def test_hostile_names_are_inert(visitor, serve, tmp_path, artifacts):
    lanes = [rlinsight.Lane(name, role="trainer_rank", rank=i) for i, name in enumerate(HOSTILE)]
    line = Timeline(tmp_path / "runs" / "hostile", rlinsight.Topology(TOPOLOGY.devices, lanes))
    for i, name in enumerate(HOSTILE):
        for at in range(3):
            line.span(name, name, at * 2, at * 2 + 1, step=i, attrs={name: name})
        line.writer.marker(name, lane=name, reason=name, ts_ns=2 * S)
        line.writer.counter("queue_depth", i, lane=name, ts_ns=S)
    line.open()
    alerts: list[str] = []
    visitor.page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    address = f"{serve(tmp_path / 'runs')}/timeline?run=hostile&table=1&find=%3Cimg"
    page = open_timeline(visitor, address)
    page.locator(".tl-table tbody tr").first.wait_for()
    assert HOSTILE[0] in page.locator(".tl-table").inner_text()
    for name in HOSTILE:
        detail = click_at(page, name, 0.5)
        until(page, f"{CHART}.picked.lane === {json.dumps(name)}")
        assert name in detail.locator("td").all_text_contents()
        still(page)
    page.get_by_role("button", name="Colours and patterns").click()
    assert page.locator(".rl-timeline img, .rl-timeline script").count() == 0
    page.screenshot(path=artifacts / "timeline-hostile.png")
    assert alerts == []


def test_a_fleet_begins_with_an_overview(visitor, serve, tmp_path, artifacts):
    devices = [
        rlinsight.Device(f"n/{i}", node="n", index=i, kind="cuda", pool="trainer")
        for i in range(70)
    ]
    lanes = [
        rlinsight.Lane(f"rank{i}", role="trainer_rank", devices=[f"n/{i}"], rank=i)
        for i in range(70)
    ]
    line = Timeline(tmp_path / "runs" / "fleet", rlinsight.Topology(devices, lanes))
    for i in range(70):
        for at in range(0, 40, 4):
            line.span(f"rank{i}", "wait_samples", at, at + 1 + i / 70)
            line.span(f"rank{i}", "update_actor", at + 1 + i / 70, at + 4)
    line.open()
    page = open_timeline(visitor, f"{serve(tmp_path / 'runs')}/timeline?run=fleet")
    modes = page.evaluate(
        f"{CHART}.layout.rows.filter((r) => r.type === 'group').map((r) => [r.group.id, r.mode])"
    )
    assert modes == [["bubbles", "open"], ["trainer", "shut"], ["devices/trainer", "strip"]]
    page.screenshot(path=artifacts / "timeline-fleet.png")
    y = page.evaluate(
        f"{CHART}.canvas.getBoundingClientRect().top + "
        f"{CHART}.rowTop({CHART}.layout.rows.find((r) => r.type === 'strip')) + 100"
    )
    page.mouse.click(page.locator(".tl-canvas").bounding_box()["x"] + 500, y)
    page.locator(".tl-detail").wait_for()
    assert page.locator(".tl-detail").inner_text().count("n/") >= 1


def test_a_trace_that_cannot_be_shown_says_why(visitor, serve, tmp_path):
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "spans.arrow").write_bytes(b"no arrow file")
    (tmp_path / "runs" / "broken" / "manifest.json").write_text("{}")
    page = visitor.open(f"{serve(tmp_path / 'runs')}/timeline?run=broken")
    assert "Traceback" not in page.content()
