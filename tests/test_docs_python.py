"""The Python in the pages runs, and docs/api.md names all that is public."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import rlinsight

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"]
API = (ROOT / "docs/api.md").read_text()


def snippets() -> list[Any]:
    return [
        pytest.param(text, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, text in enumerate(
            re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        )
    ]


def run(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a snippet in `folder`, where the traces that it opens are."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RLINSIGHT_TRACE", raising=False)
    is_written = "TraceWriter(" in text or "recording(" in text
    for place in () if is_written else re.findall(r'open\("([^"]+)"\)', text):
        shutil.copytree(ROOT / "sample_traces/fully_async", folder / place)
    names: dict[str, Any] = {}
    exec(compile(text, "snippet", "exec"), names)
    return names


@pytest.mark.parametrize("text", snippets())
def test_every_snippet_runs(text, tmp_path, monkeypatch):
    run(text, tmp_path, monkeypatch)


def test_a_trace_written_by_hand_gives_the_figures_that_the_page_says(tmp_path, monkeypatch):
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/trace.md").read_text(), re.DOTALL)
    report = run(text, tmp_path, monkeypatch)["report"]
    assert report.pools["trainer"].idle_ratio == pytest.approx(0.4)
    largest = report.bubbles.totals[0]
    assert (largest.cause, largest.share) == ("staleness_quota", pytest.approx(0.5))
    rate = report.throughput.tokens_per_s_per_device
    assert rate.value == pytest.approx(37)
    assert rate.low is not None
    assert (report.verdict.confidence, report.slots.by_kind["standalone"].utilization) == (
        "high", pytest.approx(0.35),
    )  # fmt: skip
    assert report.staleness.worst_token.mean_versions == 0
    assert report.coverage.measured is not None
    assert report.run_ahead is not None


def test_every_public_name_is_documented():
    assert {name for name in rlinsight.__all__ if not re.search(rf"\b{name}\b", API)} == set()


@pytest.mark.parametrize("of", [rlinsight.Trace, rlinsight.TraceWriter])
def test_every_public_attribute_is_documented(of):
    internal = {"buffers", "restart_after_fork", "request_row", "add_hook_time"}
    names = {name for name in vars(of) if not name.startswith("_")} - internal
    assert {name for name in names if not re.search(rf"`{name}[`(]", API)} == set()


def test_every_argument_of_the_writer_is_documented():
    section = API.split("## Writing a trace")[1]
    rows = re.findall(r"^\| (`[^|]+) \|", section.split("| method |")[0], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(inspect.signature(rlinsight.TraceWriter).parameters)
