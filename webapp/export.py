"""A view as a file that needs neither a server nor a network: HTML, or a picture of it.

The HTML carries the scripts of the app, the layout of this one view, and the answers to the
requests that its scripts make first; nothing in it asks a server.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import flask

from rlinsight.errors import RlinsightError
from rlinsight.webapp import later, pages, shell, urls
from rlinsight.webapp.address import checked
from rlinsight.webapp.app import make_dash, register_endpoints
from rlinsight.webapp.store import Store

#: Chromium may not run its sandbox as root, and must not look for its makers.
CHROMIUM_FLAGS: Final = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
CHROMIUM_PATHS: Final = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")

#: A busy machine takes long to read ten megabytes of scripts.
_PATIENCE_MS: Final = 180_000
#: Of a picture.
_WIDTH_PX: Final = 1280

_SCRIPT: Final = re.compile(r'<script[^>]*\bsrc="([^"]+)"[^>]*></script>')
_STYLE: Final = re.compile(r'<link[^>]*\brel="stylesheet"[^>]*\bhref="([^"]+)"[^>]*>')
#: Parts of the component libraries that no page uses would double the size.
_OPTIONAL: Final = r"/async-|dash_table|charts-shared"
_PARTS: Final = ("dcc/async-graph", "dcc/async-dropdown", "async-community")

#: The scripts want to know where they came from, though they load nothing more from there.
_ORIGIN: Final = '<script src="data:text/javascript,0"></script>'

_ICON: Final = re.compile(r'<link[^>]*\brel="icon"[^>]*>')


def write_view(root: Path, address: str, output: Path, *, most_px: int = 20_000) -> None:
    """Write the view at `address` (`/NAME?query`) of the traces below `root` to `output`.

    The ending decides: `.html`, or `.png`, for which Chromium and Playwright must be there.
    A picture is as high as the page, `most_px` at most. Raises RlinsightError, also for an address
    of nothing.
    """
    kind = output.suffix.lower()
    if kind not in (".html", ".png"):
        raise RlinsightError(f"expected an output that ends in .html or .png, found `{output}`")
    store = Store(root)
    checked(store, address)
    document = html(store, address)
    try:
        if kind == ".html":
            output.write_text(document, encoding="utf-8")
        else:
            _photograph(document, output, most_px)
    except OSError as error:
        raise RlinsightError(f"cannot write `{output}`: {error.strerror or error}") from error


def html(store: Store, address: str) -> str:
    """Return the view at `address` as one HTML document."""
    parts = urlsplit(address)
    path, query = parts.path or "/", urls.parsed(parts.query)
    with later.at_once():
        made = shell.view(store, path, query)
    server = flask.Flask("rlinsight-view")
    register_endpoints(server, store)
    app = make_dash(server, eager_loading=True)
    app.title = f"{made.title} · rlinsight"
    app.layout = shell.layout(made)
    client = server.test_client()
    answers = dict(_answers(client, ["/_dash-layout", *_prefetched(store, path, query)]))
    answers["/_dash-dependencies"] = ["application/json", _encoded(b"[]")]
    return _self_contained(client, answers, address)


def _prefetched(store: Store, path: str, query: pages.Query) -> list[str]:
    page = pages.find(shell.page_name(path))
    wanted = getattr(page.module, "prefetch", None) if page is not None else None
    if wanted is None:
        return []
    found: list[str] = wanted(store.run(query.get("run", "")), query)
    return found


def _answers(client: Any, requests: list[str]) -> Iterator[tuple[str, list[str]]]:
    for request in requests:
        with client.get(request) as answer:
            if answer.status_code == 200:
                yield request, [answer.content_type, _encoded(answer.data)]


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _self_contained(client: Any, answers: dict[str, list[str]], address: str) -> str:
    page = _text(client, "/")
    page = _ICON.sub("", page)
    page = _STYLE.sub(lambda m: f"<style>{_text(client, m[1])}</style>", page)
    page = _SCRIPT.sub(lambda m: _inlined(client, m[1]), page)
    known = {"address": address, "answers": answers}
    # Inside a script, what begins with `<` could end it, or begin a comment.
    text = json.dumps(known).replace("<", "\\u003c")
    stub = (Path(__file__).parent / "offline.js").read_text(encoding="utf-8")
    head = f"{_ORIGIN}<script>window.rlinsightView = {text};\n{stub}</script>"
    return page.replace("<head>", f"<head>{head}", 1)


def _text(client: Any, address: str) -> str:
    with client.get(address.replace("&amp;", "&")) as answer:
        text: str = answer.get_data(as_text=True)
    return text


def _inlined(client: Any, address: str) -> str:
    is_needed = any(part in address for part in _PARTS) or not re.search(_OPTIONAL, address)
    return f"<script>{_script(client, address)}</script>" if is_needed else ""


def _script(client: Any, address: str) -> str:
    # The end tag would end the script early wherever it stands in it.
    text = _text(client, address).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return re.sub(r"^//# sourceMappingURL=.*$", "", text, flags=re.MULTILINE)


def _photograph(document: str, output: Path, most_px: int) -> None:
    browser = chromium()
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        raise RlinsightError(
            "a picture needs Chromium and the Python package playwright (`apt-get install "
            "chromium`, `pip install playwright`); an output that ends in .html needs neither"
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "view.html"
        file.write_text(document, encoding="utf-8")
        try:
            with sync_playwright() as driver:
                _screenshot(driver, browser, file.as_uri(), output, most_px)
        except Error as error:
            said = str(error).splitlines()[0]
            raise RlinsightError(f"Chromium could not draw the view: {said}") from error


def _screenshot(driver: Any, browser: str, address: str, output: Path, most_px: int) -> None:
    opened = driver.chromium.launch(executable_path=browser, args=list(CHROMIUM_FLAGS))
    page = opened.new_page(viewport={"width": _WIDTH_PX, "height": 800})
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(address)
    page.wait_for_selector("#page > *")
    page.wait_for_function("window.rlinsight.isDrawn()")
    # What lies beyond the window is not always painted, so the window is made large enough.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": _WIDTH_PX, "height": min(max(height, 800), most_px)})
    page.wait_for_timeout(500)
    page.screenshot(path=str(output))
    opened.close()


def chromium() -> str | None:
    """Return the path of an installed Chromium, or None."""
    return next((path for path in CHROMIUM_PATHS if Path(path).exists()), None)
