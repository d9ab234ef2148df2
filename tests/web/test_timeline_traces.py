"""The timeline of traces that are no plain recording: live, hostile, large, unusable."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from timeline_page import CHART, click_at, open_timeline, still, until

import rlinsight

sys.path.insert(0, str(Path(__file__).parent.parent))
from timelines import TOPOLOGY, S, Timeline

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>" + "x" * 300,
    "\u05e9\u05dc\u05d5\u05dd \U0001f389 \u202eevil",
    "'\"&amp;%3Cb%3E,~:",
)


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
