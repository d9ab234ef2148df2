"""axe-core on each page, in light and dark: no serious finding."""

from __future__ import annotations

import pytest
from web_browser import visitor_of

from rlinsight.webapp import pages

OF_RUN = [page.name for page in pages.available() if page.of_run]
ADDRESSES = ["/", "/compare?runs=fully_async,sync", "/nothing"]
ADDRESSES += [f"/{name}?run=fully_async" for name in OF_RUN]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_serious_is_found(browser, samples, address, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    visitor = visitor_of(context)
    page = visitor.open(f"{samples}{address}")
    found = axe.run(page).response["violations"]
    context.close()
    serious = {
        rule["id"]: nodes
        for rule in found
        if rule["impact"] in ("serious", "critical") and (nodes := _ours(rule))
    }
    assert serious == {}


def _ours(rule: dict) -> list[str]:
    """Return what violates a rule, without the grid's own parts that it draws when they are seen.

    Its header row is empty, and its viewport without focus, until it has been scrolled to.
    """
    nodes = [node["html"][:200] for node in rule["nodes"]]
    if rule["id"] not in ("aria-required-children", "scrollable-region-focusable"):
        return nodes
    return [html for html in nodes if 'class="ag-' not in html]
