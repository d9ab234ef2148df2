"""The timeline in a browser: opening it, waiting for it, and where things are drawn."""

from __future__ import annotations

import time

CHART = "document.querySelector('.rl-timeline').rlChart"


def open_timeline(visitor, address: str):
    """Open the timeline and wait until its first answer is drawn."""
    page = visitor.open(address, drawn=".rl-timeline[data-ready='1']")
    still(page)
    return page


def until(page, expression: str) -> None:
    """Wait until an expression holds in the page, whose rules forbid the waiting of Playwright."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(50)


def still(page) -> None:
    """Wait until nothing is asked for, nothing moves, and the address is up to date."""
    until(
        page,
        f"!{CHART}.data.busy && {CHART}.view.from === {CHART}.target.from"
        f" && {CHART}.view.to === {CHART}.target.to",
    )
    page.wait_for_timeout(300)


def view(page) -> tuple[float, float]:
    found = page.evaluate(f"{CHART}.target")
    return found["from"], found["to"]


def place_of(page, lane: str, seconds: float, row: int = 0) -> tuple[float, float]:
    """Return where on the page a time of a lane is drawn; the lane is scrolled into sight."""
    x, y = page.evaluate(
        """([name, seconds, row]) => {
            const chart = document.querySelector(".rl-timeline").rlChart;
            const number = chart.meta.lanes.findIndex((lane) => lane.id === name);
            chart.scrollToLane(number);
            chart.wishAndDraw(true);
            const drawn = chart.layout.rows.find((r) => r.lane && r.lane.number === number);
            const box = chart.canvas.getBoundingClientRect();
            const [top, height] = drawn.tops[row];
            return [box.left + chart.x(seconds), box.top + chart.rowTop(drawn) + top + height / 2];
        }""",
        [lane, seconds, row],
    )
    still(page)
    return x, y


def click_at(page, lane: str, seconds: float, row: int = 0):
    page.mouse.click(*place_of(page, lane, seconds, row))
    detail = page.locator(".tl-detail")
    detail.wait_for()
    return detail


def first_bubble(page, cause: str) -> dict[str, float]:
    """Return the longest bubble of a cause on the rollouter's or the trainer's row."""
    return page.evaluate(
        """(cause) => {
            const chart = document.querySelector(".rl-timeline").rlChart;
            const answer = chart.data.answers[0];
            const a = answer.arrays;
            let best = null;
            for (const lane of chart.bubbleLanes.values()) for (const s of answer.lane.get(lane)) {
                if (chart.meta.states[a.series_state[s]].name !== "bubble." + cause) continue;
                for (let i = a.item_bounds[s]; i < a.item_bounds[s + 1]; i++) {
                    if (best && a.item_length[i] <= best.length) continue;
                    best = { lane: chart.meta.lanes[lane].id, row: a.series_row[s],
                             start: answer.from_s + a.item_start[i], length: a.item_length[i] };
                }
            }
            return best;
        }""",
        cause,
    )
