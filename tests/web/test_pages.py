"""Each page on each sample trace, as a person sees it."""

from __future__ import annotations

import re

import polars as pl
import pytest
from web_browser import SIZES

from rlinsight.webapp import pages

MODES = ("colocate_async", "fully_async", "separate_async", "sync")
OF_RUN = [page.name for page in pages.available() if page.of_run]
OTHERS = ("/", "/compare?runs=fully_async,separate_async,sync")


def picture(visitor, artifacts, name):
    """Look at the page in both sizes: no label may be clipped."""
    for width, height in SIZES:
        visitor.page.set_viewport_size({"width": width, "height": height})
        visitor.settle()
        visitor.picture(artifacts / f"{name}-{width}.png")
        assert visitor.clipped() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OF_RUN)
def test_a_page_of_a_run(visitor, samples, artifacts, name, mode):
    page = visitor.open(f"{samples}/{name}?run={mode}")
    assert page.locator("h1").count() == 1
    assert page.locator(".run-name").text_content() == mode
    assert page.locator("[aria-current=page]").text_content() == name.capitalize()
    picture(visitor, artifacts, f"{name}-{mode}")


@pytest.mark.parametrize("address", OTHERS)
def test_a_page_of_the_folder(visitor, samples, artifacts, address):
    visitor.open(f"{samples}{address}")
    picture(visitor, artifacts, address.strip("/").partition("?")[0] or "runs")


def test_dark_looks_dark_and_is_remembered(visitor, samples, artifacts):
    page = visitor.open(f"{samples}/overview?run=fully_async")
    page.get_by_label("Switch between light and dark").click()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", background)[:3])) < 150
    visitor.picture(artifacts / "overview-dark-1280.png")
    page = visitor.open(f"{samples}/staleness?run=fully_async")
    assert page.evaluate("document.documentElement.dataset.mantineColorScheme") == "dark"
    visitor.picture(artifacts / "staleness-dark-1280.png")


def test_following_the_navigation_keeps_the_run(visitor, samples):
    page = visitor.open(f"{samples}/")
    page.get_by_role("link", name="fully_async", exact=True).click()
    page.wait_for_url("**/overview?run=fully_async")
    page.wait_for_selector("h1:has-text('Overview')")  # from then on the links are of this run
    page.get_by_role("link", name="Lengths").click()
    page.wait_for_url("**/lengths?run=fully_async")
    page.wait_for_selector("h1:has-text('Lengths')")
    assert page.title().startswith("Lengths · fully_async")
    page.go_back()
    page.wait_for_selector("h1:has-text('Overview')")
    visitor.settle()


def test_a_control_changes_the_address_and_the_address_the_page(visitor, samples):
    page = visitor.open(f"{samples}/staleness?run=fully_async")
    page.get_by_text("last token").click()
    page.wait_for_url("**/staleness?run=fully_async&token=last")
    page.wait_for_selector("[aria-label='Histogram of the lag of the last token in versions']")
    page.reload()
    page.wait_for_selector("[aria-label='Histogram of the lag of the last token in versions']")
    visitor.settle()


def test_ticked_runs_are_compared(visitor, samples):
    page = visitor.open(f"{samples}/")
    for name in ("sync", "fully_async"):
        row = page.locator(f".ag-row[row-id={name}]")
        row.get_by_role("checkbox").click()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.wait_for_url("**/compare?runs=*")
    page.wait_for_selector("text=Figures, with 95 % intervals")
    visitor.settle()


def test_a_table_is_sorted_by_its_header(visitor, samples):
    page = visitor.open(f"{samples}/")
    header = page.locator(".ag-header-cell[col-id=trainer_idle_ratio]")
    header.click()
    page.wait_for_selector(".ag-header-cell[col-id=trainer_idle_ratio][aria-sort=descending]")
    shown = page.locator(".ag-cell[col-id=trainer_idle_ratio]").all_text_contents()
    rows = page.locator(".ag-row").all()
    order = {int(row.get_attribute("row-index")): row.get_attribute("row-id") for row in rows}
    assert order[0] == "fully_async"
    assert "32.8 %" in shown


@pytest.mark.parametrize("kind", ["CSV", "Parquet"])
def test_a_table_downloads(visitor, samples, tmp_path, kind):
    page = visitor.open(f"{samples}/overview?run=fully_async")
    section = page.get_by_role("region", name="Largest bubbles").first
    with page.expect_download() as found:
        page.locator("section", has_text="Largest bubbles").get_by_text(kind).click()
    assert section is not None
    file = tmp_path / found.value.suggested_filename
    found.value.save_as(file)
    frame = pl.read_csv(file) if kind == "CSV" else pl.read_parquet(file)
    assert "device_seconds" in frame.columns


def test_a_bubble_leads_to_its_window_on_the_timeline(visitor, samples):
    page = visitor.open(f"{samples}/overview?run=fully_async")
    page.locator("#bubbles-grid .ag-row[row-index='0'] a").click()
    page.wait_for_url("**/timeline?run=fully_async&from=*")
    assert "to=" in page.url


def test_everything_can_be_reached_by_keyboard(visitor, samples):
    page = visitor.open(f"{samples}/overview?run=fully_async")
    seen = {}
    while "end" not in seen and len(seen) < 60:
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => { const e = document.activeElement; return [
            e === document.body ? "end" : e.closest(".ag-root-wrapper") ? "grid" :
            e.textContent.trim().slice(0, 20) || e.getAttribute("aria-label"),
            getComputedStyle(e).outlineStyle]; }"""
        )
        seen[name] = outline
    assert next(iter(seen)) == "Skip to the page"
    for name in ("Runs", "Timeline", "Staleness", "Lengths", "Compare", "CSV", "Parquet"):
        assert seen[name] != "none", f"focus on `{name}` cannot be seen"
    assert {"grid", "end"} <= set(seen)


def test_the_skip_link_leads_to_the_page(visitor, samples):
    page = visitor.open(f"{samples}/overview?run=fully_async")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "page"
