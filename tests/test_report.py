"""The verdict and its renderers: one result, the same facts in each form."""

from __future__ import annotations

import io
import json
import subprocess
import sysconfig
from pathlib import Path

import pytest
from cases import balance, versions
from cases import report as recorded
from rich.console import Console
from timelines import Timeline

from rlinsight.analyzers.device_time.states import BUBBLES, cause_of
from rlinsight.report.balance import balance as balance_section
from rlinsight.report.markdown import markdown
from rlinsight.report.text import print_report
from rlinsight.report.units import number, percent, seconds
from rlinsight.report.verdict import CAUSES, paragraph

CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"


@pytest.fixture
def rollout_bound(tmp_path) -> Timeline:
    """Trainer waits 12 of 20 s, the replica generates all the time."""
    t = Timeline(tmp_path / "t", run_id="night<script>|run")
    t.step(1, 0, 10)
    t.step(2, 10, 20)
    for start in (0, 10):
        t.span("trainer", "wait_samples", start, start + 6)
        t.span("trainer", "update_actor", start + 6, start + 10)
        t.trained(f"s{start}", start + 6, (60, 140), 1 + start // 10)
    for _ in range(4):
        t.gen(0, 20)
    return t


def text_of(report, **options) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    print_report(report, console, **options)
    return console.export_text()


def test_the_verdict_names_bound_owner_cause_share_and_ceiling(rollout_bound):
    report = rollout_bound.open().analyze()
    verdict = report.verdict
    assert (verdict.bound, verdict.owner, verdict.cause) == ("rollout", "trainer", "wait_samples")
    assert verdict.share == pytest.approx(0.6)
    assert verdict.ceiling == pytest.approx(1 / 0.4 - 1)
    assert verdict.confidence == "medium"  # too few version windows
    assert paragraph(report).startswith("The run is rollout-bound")
    assert "150.0 % at most" in paragraph(report)


@pytest.mark.parametrize(
    ("trainer_busy", "replica_busy", "bound"),
    [
        ([(0, 20)], [(0, 8)], "trainer"),
        ([(0, 19)], [(0, 19)], "balanced"),
        ([(0, 10)], [(10, 20)], "pipeline"),
        ([(0, 6)], [(0, 20)], "rollout"),
    ],
)
def test_what_bounds_a_run(tmp_path, trainer_busy, replica_busy, bound):
    t = Timeline(tmp_path / "t")
    t.step(1, 0, 20)
    for start, end in trainer_busy:
        t.span("trainer", "update_actor", start, end)
    for start, end in replica_busy:
        t.gen(start, end)
    assert t.open().analyze().verdict.bound == bound


def test_every_cause_has_a_meaning_for_people():
    assert {cause_of(state) for state in BUBBLES} | {"unknown"} == set(CAUSES)


def test_all_forms_say_the_same(rollout_bound, tmp_path):
    report = rollout_bound.open().analyze()
    for form in (text_of(report), markdown(report).replace("\\", "")):
        assert "wait_samples" in form
        assert "60.0 %" in form
        assert "rollout-bound" in form


def test_hostile_names_are_escaped(rollout_bound):
    pytest.importorskip("plotly")
    from rlinsight.report.html import html

    report = rollout_bound.open().analyze()
    document = html(report)
    assert "night<script>" not in document
    assert "night&lt;script&gt;" in document
    assert "night\\<script>\\|run" in markdown(report)


def test_the_html_report_needs_no_network(rollout_bound):
    pytest.importorskip("plotly")
    from rlinsight.report.html import html

    document = html(rollout_bound.open().analyze())
    assert 'src="http' not in document
    assert document.count("Plotly.newPlot") >= 3


def test_a_notebook_shows_the_report(rollout_bound):
    assert "<table>" in rollout_bound.open().analyze()._repr_html_()


def cli(*arguments) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *map(str, arguments)], capture_output=True, text=True)


def test_the_command_line_end_to_end(rollout_bound, tmp_path):
    path = rollout_bound.path
    rollout_bound.open()
    done = cli("analyze", path, "--markdown", tmp_path / "r.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2] == "t: trainer idle 60.0 %, rollouter idle 0.0 %"
    assert done.stdout.splitlines()[-1] == f"next: open {tmp_path / 'r.md'}"
    assert "rollout-bound" in (tmp_path / "r.md").read_text()
    found = json.loads(cli("analyze", path, "--json", "--window", ":10").stdout)
    assert found["pools"]["trainer"]["device_seconds"] == 10.0
    assert found["verdict"]["bound"] == "rollout"
    assert found["bubbles"][0]["cause"] == "wait_samples"


def test_steps_pools_and_lanes_restrict(rollout_bound):
    path = rollout_bound.path
    rollout_bound.open()
    found = json.loads(cli("analyze", path, "--json", "--steps", "2:2").stdout)
    assert found["window"]["end_ns"] - found["window"]["start_ns"] == 10_000_000_000
    lane = json.loads(cli("analyze", path, "--json", "--lane", "replica0").stdout)
    assert list(lane["pools"]) == ["rollouter"]
    assert "rollouter" not in cli("analyze", path, "--pool", "trainer").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--window", "1-2"], "expected `--window START:END` in seconds"),
        (["--window", "nan:2"], "expected `--window START:END` in seconds"),
        (["--window", "9:2"], "that ends after it starts, found `9:2` in a recording of"),
        (["--steps", "90:99"], "expected ended training steps"),
        (["--steps", "1:2", "--window", "1:2"], "give one of them"),
        (["--pool", "gpu"], "expected a pool of this run (`trainer`, `rollouter`), found `gpu`"),
        (["--lane", "replica9"], "found `replica9`"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_exit_code_2(rollout_bound, arguments, sentence):
    rollout_bound.open()
    done = cli("analyze", rollout_bound.path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_no_trace_is_one_sentence(tmp_path):
    done = cli("analyze", tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_units():
    assert [seconds(v) for v in (None, 0, 2e-7, 0.0123, 1.5, 75, 700, 40000)] == [
        "-", "0 s", "200 ns", "12.3 ms", "1.50 s", "75.0 s", "11.7 min", "11.1 h",
    ]  # fmt: skip
    assert [percent(v) for v in (None, 0, 0.5, 0.0004, 1.2)] == [
        "-", "0.0 %", "50.0 %", "0.04 %", "120.0 %",
    ]  # fmt: skip
    assert number(1234.5, "tokens") == "1234 tokens"


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (versions(True), ["lagging replica: replica1"]),
        (versions(False, (5, 6)), ["replica that skipped versions: replica1"]),
        (versions(False), []),
    ],
)
def test_replicas_that_lag_and_those_that_skipped_versions_are_both_told(of, rows):
    found = dict(balance_section(recorded(balance=balance(versions=(of,)))).rows)
    assert [what for what in found if "replica1" in what] == rows
    if of.skipped:
        assert found[rows[0]] == "2 that its peers took: 5, 6"
