"""Sliders: the prediction follows, and so does the address."""

from __future__ import annotations


def test_a_slider_changes_the_prediction_and_the_address(visitor, samples, artifacts):
    page = visitor.open(f"{samples}/advisor?run=fully_async")
    before = page.locator("#prediction").text_content()
    slider = page.get_by_role("slider", name="Staleness threshold")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.locator("#prediction", has_text="async_training.staleness_threshold=1.0").wait_for()
    assert page.locator("#prediction").text_content() != before
    assert page.locator("#value-staleness_threshold").text_content() == "1"
    assert "staleness_threshold=1" in page.url
    page.locator(".part-pareto .main-svg").first.wait_for()
    visitor.picture(artifacts / "advisor-moved-1280.png")


def test_an_address_with_a_knob_shows_its_prediction(visitor, samples):
    page = visitor.open(f"{samples}/advisor?run=fully_async&staleness_threshold=0.3")
    assert "async_training.staleness_threshold=0.3" in page.locator("#prediction").text_content()
    page.get_by_role("link", name="as it was").click()
    page.locator("#prediction", has_text="Move a knob").wait_for()
    visitor.settle()


def test_dragging_asks_one_question_at_a_time(visitor, samples):
    page = visitor.open(f"{samples}/advisor?run=sync")
    slider = page.get_by_role("slider", name="Lengths, times", exact=True)
    slider.focus()
    asked = len(visitor.requests)
    for _ in range(15):
        page.keyboard.press("ArrowRight")
    page.locator("#prediction h2, #prediction .verdict-first").first.wait_for()
    page.wait_for_timeout(1500)
    posts = [url for url in visitor.requests[asked:] if "_dash-update-component" in url]
    assert 1 <= len(posts) < 15
