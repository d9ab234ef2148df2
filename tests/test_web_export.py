"""A view as a file: complete, asking nobody, and showing what the page shows."""

from __future__ import annotations

import base64
import json
import re

import pytest
from timelines import Timeline
from web_views import HOSTILE, SAMPLES, figures

from rlinsight.errors import RlinsightError
from rlinsight.webapp import export, later, shell
from rlinsight.webapp.store import Store


@pytest.fixture(scope="module")
def document():
    return export.html(Store(SAMPLES), "/overview?run=sync")


def carried(document):
    """The answers that a document carries, by request."""
    text = re.search(r"window\.rlinsightView = (\{.*\});$", document, re.MULTILINE)[1]
    answers = json.loads(text)["answers"]
    return {path: base64.b64decode(data) for path, (_, data) in answers.items()}


def test_it_names_no_address_to_load_from(document):
    outside = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]*)"', document)
    assert [address for address in outside if not address.startswith("data:")] == []


def test_it_is_titled_after_the_view(document):
    assert "<title>Overview · sync · rlinsight</title>" in document


def test_it_carries_the_whole_view(document):
    layout = json.loads(carried(document)["/_dash-layout"])
    said = json.dumps(layout, ensure_ascii=False)
    assert Store(SAMPLES).run("sync").report.run.mode in said
    assert "simulating" not in said
    assert "What to change first" in said
    assert json.loads(carried(document)["/_dash-dependencies"]) == []


def test_a_timeline_carries_its_first_window():
    carries = carried(export.html(Store(SAMPLES), "/timeline?run=sync&from=180&to=190"))
    assert any(path.startswith("/timeline/meta") for path in carries)
    assert any(path.startswith("/timeline/window") and "from=180" in path for path in carries)


def test_slow_parts_follow_a_page_and_come_with_a_file():
    store = Store(SAMPLES)
    page = shell.view(store, "/advisor", {"run": "sync"}).body
    with later.at_once():
        whole = shell.view(store, "/advisor", {"run": "sync"}).body
    assert (len(figures(page)), len(figures(whole))) == (0, 1)
    assert len(figures(shell.view(store, "/advisor", {"run": "sync"}).body)) == 0


def test_names_of_a_trace_cannot_end_the_script(tmp_path):
    t = Timeline(tmp_path / "trace", run_id=HOSTILE["script"])
    t.step(1, 0, 1)
    t.span("trainer", HOSTILE["script"], 0, 1)
    t.open()
    document = export.html(Store(tmp_path), f"/overview?run=trace&x={HOSTILE['script']}")
    assert HOSTILE["script"] not in document
    assert "<script>window.hit" not in document


def test_the_ending_decides(tmp_path):
    export.write_view(SAMPLES, "/", tmp_path / "runs.html")
    assert (tmp_path / "runs.html").read_text().startswith("<!doctype html>")
    with pytest.raises(RlinsightError, match=r"ends in \.html or \.png"):
        export.write_view(SAMPLES, "/", tmp_path / "runs.pdf")


def test_without_a_browser_a_picture_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "CHROMIUM_PATHS", ())
    with pytest.raises(RlinsightError, match="needs Chromium and the Python package playwright"):
        export.write_view(SAMPLES, "/", tmp_path / "runs.png")


def test_a_file_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(RlinsightError, match="cannot write"):
        export.write_view(SAMPLES, "/", tmp_path / "nowhere/runs.html")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/nosuch", r"expected a page \(/runs, /overview, .*\), found `/nosuch`"),
        ("/overview?run=nosuch", r"`run=` with a run \(.*fully_async.*\), found `nosuch`"),
        ("/overview?run=fuly_async", "did you mean `fully_async`"),
        ("/overview", "found none"),
        ("/compare?runs=sync,nosuch", "found `nosuch`"),
        ("/timeline?run=sync&from=abc", "expected `from=` in seconds since the first row"),
        ("/timeline?run=sync&to=nan", "expected `to=` in seconds"),
        ("/timeline?run=sync&from=20&to=10", "expected `from` before `to`, found 20 and 10"),
    ],
)
def test_an_address_of_nothing_writes_nothing(tmp_path, address, said):
    with pytest.raises(RlinsightError, match=said):
        export.write_view(SAMPLES, address, tmp_path / "view.html")
    assert not list(tmp_path.iterdir())
