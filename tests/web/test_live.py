"""A run that is being recorded, by a process of its own, is shown as it grows."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from timelines import TOPOLOGY, Timeline

import rlinsight

#: Writes a step every half second until its standard input is closed, then ends the run.
RECORDER = """
import select, sys, time
import rlinsight
from timelines import TOPOLOGY

with rlinsight.TraceWriter(sys.argv[1], topology=TOPOLOGY, mode="fully_async") as writer:
    writer.flush()
    step = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        step += 1
        now = writer.now_ns()
        writer.marker("param_sync", lane="trainer", param_version=step, ts_ns=now)
        phases = (("step", 0, 0.5), ("wait_samples", 0, 0.2), ("update_actor", 0.2, 0.5))
        for activity, start, end in phases:
            at = [now + round(t * 1e9) for t in (start, end)]
            writer.span(activity, lane="trainer", start_ns=at[0], end_ns=at[1], step=step)
        writer.request(request_id=f"r{step}", lane="replica0", submit_ns=now,
                       end_ns=now + 10**9 // 2, response_tokens=100 + step, finish="stop")
        writer.sample(sample_uid=f"s{step}", fate="trained", consumed_ns=now + 10**9 // 5,
                      prompt_tokens=50, response_tokens=100 + step, trained_step=step,
                      version_start=step, trained_version=step)
        time.sleep(0.5)
"""


@pytest.fixture
def recorder(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(RECORDER), str(tmp_path / "runs/now")]
    tests = Path(__file__).parent.parent
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tests)
    yield process
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    process.wait(30)


def test_a_live_run_appears_grows_and_ends(visitor, serve, recorder, tmp_path, artifacts):
    (tmp_path / "runs").mkdir(exist_ok=True)
    address = serve(tmp_path / "runs")
    page = visitor.page
    page.goto(address)
    page.get_by_role("link", name="now", exact=True).wait_for()
    page.get_by_text("Live", exact=True).wait_for()
    visitor.open(f"{address}/overview?run=now")
    assert page.locator(".state").text_content() == "Live"
    duration = page.locator(".section-note", has_text="Figures over").first
    before = duration.text_content()
    visitor.picture(artifacts / "live-1280.png")
    page.locator(".section-note", has_text="Figures over").filter(
        has_not_text=before
    ).first.wait_for()
    recorder.stdin.close()
    recorder.wait(30)
    page.locator(".state", has_text="Finished").wait_for()
    visitor.settle()


def test_the_mark_of_a_live_timeline_ends_with_the_run_after_it_was_moved(
    visitor, serve, recorder, tmp_path
):
    (tmp_path / "runs").mkdir(exist_ok=True)
    address = serve(tmp_path / "runs")
    page = visitor.page
    page.goto(address)
    page.get_by_role("link", name="now", exact=True).wait_for()
    visitor.open(f"{address}/timeline?run=now", drawn=".rl-timeline[data-ready='1']")
    page.locator(".tl-canvas").focus()
    # At first it may show a run of which nothing is recorded yet: nothing to come closer to.
    until = time.monotonic() + 30
    while "from=" not in page.url and time.monotonic() < until:
        page.keyboard.press("w")  # closer, which moves the address along
        page.wait_for_timeout(1000)
    assert "from=" in page.url
    assert page.locator(".state").text_content() == "Live"
    recorder.stdin.close()
    recorder.wait(30)
    page.locator(".state", has_text="Finished").wait_for()
    assert "from=" in page.url  # the view has stayed
    visitor.settle()


def test_a_run_appears_in_the_list_while_it_is_open(visitor, serve, tmp_path):
    (tmp_path / "runs").mkdir()
    page = visitor.page
    page.goto(serve(tmp_path / "runs"))
    page.wait_for_selector("text=No traces here yet")
    t = Timeline(tmp_path / "runs/new")
    t.step(1, 0, 1)
    t.open()
    page.get_by_role("link", name="new", exact=True).wait_for()
    visitor.settle()


def test_a_run_that_records_nothing_at_first_is_looked_at_again(visitor, serve, tmp_path):
    """Loading a model takes minutes; the list of runs has long been read by then."""
    with rlinsight.TraceWriter(tmp_path / "runs/now", topology=TOPOLOGY) as writer:
        writer.flush()
        page = visitor.page
        page.goto(serve(tmp_path / "runs"))
        page.get_by_text("nothing has been recorded").wait_for()
        assert page.get_by_text("Live", exact=True).is_visible()
        page.wait_for_timeout(6000)  # several looks that find it unchanged
        now = writer.now_ns()
        writer.span("step", lane="trainer", start_ns=now, end_ns=now + 10**9, step=1)
        writer.flush()
        page.get_by_text("nothing has been recorded").wait_for(state="detached")
        assert page.get_by_text("Live", exact=True).is_visible()
    page.get_by_text("Finished", exact=True).wait_for()
    visitor.settle()
