"""Names that would do something if they were read as markup: they are text and nothing else."""

from __future__ import annotations

import pytest
from test_web_pages import hostile_trace
from web_views import HOSTILE

from rlinsight.webapp import pages

OF_RUN = [page.name for page in pages.available() if page.of_run]


@pytest.fixture
def hostile(serve, tmp_path):
    hostile_trace(tmp_path, *HOSTILE.values())
    return serve(tmp_path)


@pytest.mark.parametrize("path", ["/", *(f"/{name}?run=trace" for name in OF_RUN)])
def test_hostile_names_are_inert_on_every_page(visitor, hostile, artifacts, path):
    page = visitor.open(f"{hostile}{path}")
    assert page.evaluate("window.hit") is None
    assert page.locator("#page img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    name = path.strip("/").partition("?")[0] or "runs"
    visitor.picture(artifacts / f"hostile-{name}.png")


@pytest.mark.parametrize("kind", ["html", "rtl", "emoji", "long"])
def test_a_folder_with_a_hostile_name_is_a_run_like_any_other(visitor, serve, tmp_path, kind):
    from timelines import Timeline

    name = HOSTILE[kind].replace("/", "∕")[:80]
    t = Timeline(tmp_path / name)
    t.step(1, 0, 1)
    t.open()
    page = visitor.open(serve(tmp_path))
    link = page.locator(".ag-row a")
    assert link.text_content() == name
    link.click()
    page.wait_for_url("**/overview?run=*")
    page.wait_for_selector(".run-name")
    assert page.locator(".run-name").text_content() == name
    assert page.evaluate("window.hit") is None
    visitor.settle()


def test_an_address_with_markup_is_inert(visitor, serve, tmp_path):
    address = serve(tmp_path)
    page = visitor.open(
        f"{address}/<img src=x onerror=window.hit=1>?run=<script>window.hit=1</script>"
    )
    assert page.evaluate("window.hit") is None
    assert page.locator("#page img").count() == 0
