"""A real server on this machine, and somebody who looks at its pages and notices what is wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import waitress

ARTIFACTS = Path(__file__).parent.parent / "artifacts"
SIZES = ((1280, 800), (1920, 1080))

#: Where text must be readable in full.
LABELS = (
    "h1, h2, .card-label, .card-value, .card-unit, .card-note, .button, .legend li, .run-name, "
    ".ledger-kinds span, .mantine-NavLink-label, .ag-header-cell-text"
)


def listen(server: Any) -> Iterator[str]:
    """Serve a WSGI application on a free port of this machine; yield its address."""
    made = waitress.create_server(server, host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{made.effective_port}"
    made.close()
    thread.join(10)


@dataclass
class Visitor:
    """A page that remembers whatever went wrong on it."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, address: str, drawn: str = "#page > *") -> Any:
        """Go to an address and wait until everything on it has been drawn."""
        self.page.goto(address)
        self.page.wait_for_selector(drawn)
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until figures and tables are there."""
        # `wait_for_function` evaluates a string in the page, which its rules for scripts forbid.
        for _ in range(600):
            if self.page.evaluate("window.rlinsight.isDrawn()"):
                break
            self.page.wait_for_timeout(100)
        else:
            raise AssertionError("the page was not drawn in a minute")
        self.page.wait_for_timeout(150)

    def picture(self, path: Path) -> None:
        """Take a picture of the whole page, in a window as large as it."""
        before = self.page.viewport_size
        height = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({"width": before["width"], "height": max(height, 600)})
        self.page.wait_for_timeout(300)
        self.page.screenshot(path=path)
        self.page.set_viewport_size(before)

    def clipped(self) -> list[str]:
        """Return the labels that do not fit, and the page itself if it is too wide."""
        found: list[str] = self.page.evaluate(
            """(labels) => [...document.querySelectorAll(labels)]
            .filter((e) => e.offsetParent && !e.matches(".visually-hidden")
                && (e.scrollWidth > e.clientWidth + 1) && getComputedStyle(e).display !== "inline")
            .map((e) => e.className + ": " + e.textContent)""",
            LABELS,
        )
        width = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return found + ([f"the page is {width} px too wide"] if width > 0 else [])


def visitor_of(context: Any) -> Visitor:
    """Open a page in a browser context and listen to what goes wrong on it."""
    visitor = Visitor(context.new_page())
    page = visitor.page
    page.set_default_timeout(60_000)
    page.on("console", lambda m: visitor.problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: visitor.problems.append(str(error)))
    page.on("request", lambda request: visitor.requests.append(request.url))
    page.on(
        "response",
        lambda r: visitor.problems.append(f"{r.status} {r.url}") if r.status >= 500 else None,
    )
    return visitor
