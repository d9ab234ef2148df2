"""Names of a trace as a terminal shows them: short, harmless, and whole in JSON."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import rlinsight
from rlinsight import cli
from rlinsight.cli import app
from rlinsight.errors import RlinsightError
from rlinsight.report.check.listing import baseline_table
from rlinsight.report.plain import LONGEST_LINE, LONGEST_NAME, NAME_SHOWN, line, plain
from rlinsight.report.section import Section
from rlinsight.report.text import as_table

LONG = 12_345


def test_a_long_name_is_cut_and_its_length_said():
    assert line("a" * LONG) == "a" * NAME_SHOWN + "… (12,345 characters)"
    name = "b c" * 300
    assert line(f"lane `{name}` died") == f"lane `{name[:80]}… (900 characters)` died"


def test_what_stands_between_two_names_is_no_name():
    known = ", ".join(f"run number {i}" for i in range(40))
    text = f"expected one of `{'a' * 300}`; {known}; found `nope`"
    assert line(text) == f"expected one of `{'a' * 80}… (300 characters)`; {known}; found `nope`"


def test_both_sides_of_the_limits():
    assert line("a" * LONGEST_NAME) == "a" * LONGEST_NAME
    assert line("a" * (LONGEST_NAME + 1)).endswith("… (257 characters)")
    words = "word " * (LONGEST_LINE // 5)
    assert line(words) == words
    assert line(words + "x").endswith(f"… ({LONGEST_LINE + 1:,} characters)")


def test_ordinary_text_is_left_as_it_is():
    text = "trainer idle 12.3 %, `/tmp/" + "folder/" * 30 + "spans.arrow`: [bold] 3 × α"
    assert line(text) == text


def test_what_a_terminal_would_obey_is_escaped():
    assert line("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert plain("first\nsecond\x07") == "first\nsecond\\x07"


# ---- the commands ----------------------------------------------------------------------------

#: One name of each kind that a trace may hold, each told from the others by its letter.
NAMES = {kind: letter * LONG for kind, letter in zip(
    ("run", "lane", "node", "activity", "reason", "hook", "finish", "counter", "engine"),
    "qwzyxkjvg", strict=True)}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run in which every name is thousands of characters long."""
    folder = tmp_path_factory.mktemp("long") / "trace"
    lane = NAMES["lane"]
    node = "n" + NAMES["node"][:200]  # part of a file name
    topology = rlinsight.Topology(
        devices=[rlinsight.Device(lane + "/d", node=node, index=0, kind="cuda", pool="trainer")],
        lanes=[rlinsight.Lane(lane, role="trainer", devices=[lane + "/d"])],
    )
    with rlinsight.TraceWriter(folder, mode="sync", topology=topology) as writer:
        for n in range(10):
            at = n * 10**9
            writer.span("update_actor", lane=lane, start_ns=at, end_ns=at + 9 * 10**8, step=n)
            writer.span(NAMES["activity"], lane=lane, start_ns=at, end_ns=at + 10**8)
            writer.span("update_actor", lane="undeclared" + lane, start_ns=at, end_ns=at + 10**8)
            writer.marker("param_sync", ts_ns=at, lane=lane, param_version=n)
            writer.marker("pause", ts_ns=at, lane=lane, reason=NAMES["reason"])
            writer.counter(NAMES["counter"], n, ts_ns=at, lane=lane)
    manifest = folder / "manifest.json"
    if manifest.exists():
        data = json.loads(manifest.read_text())
        data["run_id"] = NAMES["run"]
        manifest.write_text(json.dumps(data))
    return folder


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert not isinstance(result.exception, RlinsightError)
    return result.output


def longest(output: str) -> str:
    """Return the longest run of one letter."""
    return max((found[0] for found in re.finditer(r"(\w)\1*", output)), key=len, default="")


@pytest.mark.parametrize("command", ["validate", "analyze"])
def test_no_command_prints_a_long_name_in_full(trace: Path, command: str) -> None:
    output = run(command, str(trace))
    assert len(longest(output)) <= NAME_SHOWN, output[:2000]


def test_the_cells_of_every_table_are_cut() -> None:
    section = Section("Lanes", ("lane " + NAMES["lane"],), ((NAMES["lane"],),), NAMES["node"])
    row = {
        "mode": "sync", "model": NAMES["run"], "name": NAMES["run"], "trusted": True, "windows": 1,
        "recorded_ns": None, "tokens_per_s_per_device": 1.0, "step_time_s": 1.0,
        "note": NAMES["reason"],
    }  # fmt: skip
    for table in (as_table(section, 2000), baseline_table("key", [row])):
        console = Console(width=2000, file=io.StringIO())
        console.print(table)
        output = console.file.getvalue()  # type: ignore[attr-defined]
        assert len(longest(output)) <= NAME_SHOWN
        assert "… (12,34" in output


def test_validate_names_what_it_found_and_json_keeps_it_whole(trace: Path) -> None:
    output = run("validate", str(trace))
    assert f"{NAMES['lane'][:20]}" in output
    assert "characters)" in output
    whole = json.loads(run("validate", str(trace), "--json"))
    assert any(lane["id"] == NAMES["lane"] for lane in whole["lanes"])
    assert any(NAMES["lane"] in finding["message"] for finding in whole["findings"])


def test_an_error_that_repeats_a_long_name_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli._fail(f"expected a lane, found `{NAMES['lane']}`", 2)
    assert ended.value.code == 2
    assert "… (12,345 characters)`" in capsys.readouterr().err
