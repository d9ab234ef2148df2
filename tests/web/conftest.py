"""A real server, and Debian's Chromium looking at it.

Where there is no Chromium (`make apt` installs it) these tests are skipped, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from web_browser import ARTIFACTS, Visitor, listen, visitor_of
from web_views import four_samples

from rlinsight.webapp.app import create_app
from rlinsight.webapp.export import CHROMIUM_FLAGS, chromium


@pytest.fixture(scope="session")
def samples(tmp_path_factory) -> Iterator[str]:
    """The address of one sample trace of each mode."""
    folder = four_samples(tmp_path_factory.mktemp("samples"))
    yield from listen(create_app(folder).server)


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve a folder of traces; returns its address."""
    running = []

    def start(folder: Path, token: str | None = None) -> str:
        one = listen(create_app(folder, token).server)
        running.append(one)
        return next(one)

    yield start
    for one in running:
        next(one, None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on this machine: `make apt` installs it")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the `dev` extra")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=list(CHROMIUM_FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def visitor(browser, serve) -> Iterator[Visitor]:
    """A visitor whose page must end without an error and without asking anybody else.

    It leaves before the server of `serve` goes.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    made = visitor_of(context)
    yield made
    context.close()
    assert made.problems == []
    local = ("http://127.0.0.1:", "data:", "blob:", "file:")
    assert [url for url in made.requests if not url.startswith(local)] == []


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots are kept for a person's eye."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.browser)
