"""`--json` holds in every form of a command: nothing but JSON, versioned, its keys documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from gating import ROOT, SAMPLES, cli

TRACE = SAMPLES / "fully_async"


def keys(page: str, after: str) -> set[str]:
    """Return what the paragraph or table that follows `after` in a page of docs names as keys."""
    part = (ROOT / "docs" / page).read_text().split(after)[1].removeprefix(", schema version 1: ")
    return set(re.findall(r"`(\w+)`", re.split(r"\n\n(?!\|)", part)[0]))


def test_the_knobs():
    found = cli("whatif", TRACE, "--knobs", "--json").json
    assert found["schema_version"] == 1
    assert found["mode"] == "fully_async"
    by_name = {row["knob"]: row for row in found["knobs"]}
    assert by_name["staleness_threshold"]["value"] == 0.5
    assert by_name["staleness_threshold"]["sets"] == "async_training.staleness_threshold"
    documented = keys("simulator.md", "`rlinsight whatif --knobs --json`")
    assert {*found, *by_name["sync_step"]} == documented


def test_a_rule():
    found = cli("advise", "--explain", "long_tail", "--json").json
    assert found["rule"] == "long_tail"
    assert set(found) == keys("advisor.md", "`rlinsight advise --explain RULE --json`")


def test_the_trend_of_a_baseline(tmp_path):
    kept, page = tmp_path / "kept", tmp_path / "trend.html"
    cli("baseline", "add", TRACE, "--to", kept)
    found = cli("check", "--baseline", kept, "--history", page, "--json").json
    assert page.exists()
    trend = next(t for t in found["trends"] if t["name"] == "step_time_s")
    assert [point["state"] for point in trend["points"]] == ["trusted"]
    documented = keys("check.md", "--history PATH --json`:\n\n")
    assert set(found) <= documented
    assert set(trend) <= documented
    assert set(trend["points"][0]) <= keys("check.md", "Of a point: ") | {"run"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("whatif", TRACE, "--knobs", "--markdown", "x.md"),
        ("whatif", TRACE, "--knobs", "--set", "sync_step=1"),
        ("advise", "--explain", "long_tail", "--markdown", "x.md"),
        ("check", "--baseline", "kept", "--history", "x.html", "--junit", "x.xml"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code == 2
    assert "--" in done.err
    assert not list(Path().iterdir())


def test_a_misspelt_name_is_guessed():
    assert "did you mean `long_tail`?" in cli("advise", "--explain", "long_tial").err
    done = cli("whatif", TRACE, "--set", "stalenes=0.3")
    assert "did you mean `staleness_threshold`?" in done.err
    assert "rollout_replicas" in done.err


def test_a_validation():
    found = cli("validate", TRACE, "--json").json
    assert found["schema_version"] == 1
    assert set(found) <= keys("trace.md", "`rlinsight validate --json`")


def test_the_runs_of_a_baseline(tmp_path):
    cli("baseline", "add", TRACE, "--to", tmp_path / "kept")
    found = cli("baseline", "list", tmp_path / "kept", "--json").json
    (row,) = found["runs"]
    assert {*found, *row} == keys("check.md", "`rlinsight baseline list FOLDER --json`:\n\n")


def test_a_run_its_plan_and_the_doctor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = ("run", "--json", "--trace", "t", "--", "true")
    plan = cli(*ran[:2], "--check", *ran[2:]).json
    assert set(plan) <= keys("run.md", "`rlinsight run --check --json`")
    assert set(cli(*ran).json) <= keys("run.md", "`rlinsight run --json`")
    found = cli("doctor", "--json").json
    assert {*found, *found["lines"][0]} <= keys("run.md", "`rlinsight doctor --json`, schema")
    config = ROOT / "examples" / "sync.yaml"
    found = cli("tune", config, "--dry-run", "--json").json
    assert set(found) <= keys("tune.md", "`--dry-run --json`")
