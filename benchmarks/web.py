"""The timeline in a browser and on the wire, of a trace of the size of a large run.

    python benchmarks/web.py [--spans 10000000] [--folder DIR] [--no-browser] [--json]

A real server (`rlinsight serve`) is started twice: once to index the trace, and once more with
the index there. Then a browser opens the timeline, one client asks for random windows, and many
clients do so at once, each looking at a window for up to half a second before it asks for the next.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from harness import Figure, report

LANES = 512
WINDOWS = 100
USERS = 20
WINDOWS_A_USER = 10
LOOKING_S = 0.5
SHOWN_LANES = 40
PIXELS = 1500

_RLINSIGHT = (sys.executable, "-c", "from rlinsight.cli import main; main()")

PAN = """async (share) => {
  const chart = document.querySelector(".rl-timeline").rlChart;
  const span = chart.meta.duration_s * share;
  let from = (chart.meta.duration_s - span) / 2;
  chart.setView(from, from + span);
  await new Promise((done) => setTimeout(done, 1500));
  chart.frames.length = 0;
  for (let i = 0; i < 90; i++) {
    from += span / 300;
    chart.setView(from, from + span);
    await new Promise(requestAnimationFrame);
  }
  return chart.frames.map((frame) => frame.took);
}"""


class Server:
    """A running `rlinsight serve` with its own cache folder."""

    def __init__(self, folder: Path, cache: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [*_RLINSIGHT, "serve", str(folder), "--no-open", "--port", str(self.port)],
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            stdout=subprocess.DEVNULL,
        )
        while not self._listens():
            if self.process.poll() is not None:
                raise RuntimeError("the server ended")
            time.sleep(0.02)
        self.listening = time.perf_counter()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=600) as answer:
            return answer.status, answer.read()

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@contextmanager
def serving(folder: Path, cache: Path) -> Iterator[Server]:
    server = Server(folder, cache)
    try:
        yield server
    finally:
        server.stop()


def indexed(server: Server, run: str) -> dict[str, Any]:
    """Wait for the index of a run; return its meta."""
    while True:
        status, body = server.get(f"/timeline/meta?run={run}")
        if status == 200:
            meta: dict[str, Any] = json.loads(body)
            return meta
        time.sleep(0.2)


def random_window(chance: random.Random, meta: dict[str, Any]) -> str:
    """Return a question for a window of any size, down to a ten-thousandth, anywhere."""
    span = meta["duration_s"] * 10 ** -chance.uniform(0, 4)
    start = chance.uniform(0, meta["duration_s"] - span)
    lanes = [i for i, lane in enumerate(meta["lanes"]) if lane["role"] != "requests"]
    first = chance.randrange(len(lanes) - SHOWN_LANES)
    shown = ",".join(map(str, lanes[first : first + SHOWN_LANES]))
    groups = "trainer,standalone,devices/trainer,devices/rollout"
    where = f"from={start:.9f}&to={start + span:.9f}&px={PIXELS}"
    return f"/timeline/window?run={meta['run']}&{where}&lanes={shown}&groups={groups}&gauges=1"


def ask(server: Server, question: str) -> tuple[float, int]:
    """Return how long an answer took in s, and its size."""
    start = time.perf_counter()
    _, body = server.get(question)
    return time.perf_counter() - start, len(body)


def one_user(server: Server, meta: dict[str, Any]) -> list[tuple[float, int]]:
    chance = random.Random(1)
    return [ask(server, random_window(chance, meta)) for _ in range(WINDOWS)]


def many_users(server: Server, meta: dict[str, Any]) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []

    def visit(number: int) -> None:
        chance = random.Random(100 + number)
        for _ in range(WINDOWS_A_USER):
            time.sleep(chance.uniform(0, LOOKING_S))
            found.append(ask(server, random_window(chance, meta)))

    users = [threading.Thread(target=visit, args=(number,)) for number in range(USERS)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    return found


def has_browser() -> bool:
    """Whether there is a browser to measure in; says so where there is none."""
    from rlinsight.webapp.export import chromium

    found = chromium() is not None and importlib.util.find_spec("playwright") is not None
    if not found:
        print("no Chromium or no playwright: nothing is measured in a browser", file=sys.stderr)
    return found


@contextmanager
def browsing() -> Iterator[Any]:
    """Open a browser, and a page of another address first: starting it is not what is measured."""
    from playwright.sync_api import sync_playwright

    from rlinsight.webapp.export import CHROMIUM_FLAGS, chromium

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        page = browser.new_page(viewport={"width": 1920, "height": 1080})
        page.goto("about:blank")
        yield page
        browser.close()


def in_browser(server: Server, page: Any, run: str) -> list[Figure]:
    page.goto(f"{server.address}/timeline?run={run}")
    page.wait_for_selector(".rl-timeline[data-ready]", timeout=120_000)
    shown = time.perf_counter() - server.listening
    figures = [Figure("listening to the first timeline", shown, "s", at_most=2)]
    for name, share in (("the whole run", 1.0), ("a hundredth of it", 0.01)):
        took = np.array(page.evaluate(PAN, share))
        figures.append(Figure(f"frame while panning {name}, median", float(np.median(took)), "ms"))
        figures.append(
            Figure(f"frame while panning {name}, p95", float(np.percentile(took, 95)), "ms")
        )
    return figures


def measure(folder: Path, spans: int, *, browser: bool) -> list[Figure]:
    traces, cache = folder / "traces", folder / "cache"
    import synthetic

    rows = spans // 10
    synthetic.write(traces / "large", spans=spans, requests=rows, samples=rows, lanes=LANES)
    with serving(traces, cache) as server:
        start = time.perf_counter()
        meta = indexed(server, "large")
        indexing = time.perf_counter() - start
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    figures = [
        Figure("lanes", len({lane["name"] for lane in meta["lanes"]}), "", at_least=LANES),
        Figure("intervals that are drawn", meta["items"], "", at_least=spans),
        Figure("indexing, the first time", indexing, "s"),
        Figure("index on disk", size / 1e6, "MB"),
    ]
    if browser:
        with browsing() as page, serving(traces, cache) as server:
            figures.append(Figure("start to listening", server.listening - server.started, "s"))
            figures += in_browser(server, page, "large")
    with serving(traces, cache) as server:
        start = time.perf_counter()
        indexed(server, "large")
        ask(server, f"/timeline/window?run=large&px={PIXELS}&lanes=0-40&gauges=1")
        figures.append(Figure("first answers, index warm", time.perf_counter() - start, "s", 2))
        alone, crowd = one_user(server, meta), many_users(server, meta)
        peak = server.peak_bytes()
    times, sizes = (np.array(column) for column in zip(*alone, strict=True))
    crowded = np.array([took for took, _ in crowd])
    return [
        *figures,
        Figure("a random window, median", float(np.median(times)) * 1e3, "ms"),
        Figure("a random window, p95", float(np.percentile(times, 95)) * 1e3, "ms", at_most=200),
        Figure("an answer, largest", float(sizes.max()) / 1e6, "MB", at_most=1.5),
        Figure(f"{USERS} users, median", float(np.median(crowded)) * 1e3, "ms"),
        Figure(f"{USERS} users, p95", float(np.percentile(crowded, 95)) * 1e3, "ms", at_most=1000),
        Figure("server's memory, peak", peak / 1e9, "GB", at_most=2),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None, help="for the traces; temporary")
    parser.add_argument("--no-browser", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        figures = measure(Path(name), given.spans, browser=not given.no_browser and has_browser())
    report("timeline", figures)


if __name__ == "__main__":
    main()
