"""The timeline is moved by mouse, by keyboard, by step and by name."""

from __future__ import annotations

import pytest
from timeline_page import CHART, open_timeline, place_of, still, until, view


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
