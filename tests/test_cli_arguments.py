"""What is given instead of a trace: a sentence says what was expected, found, and what to do."""

from __future__ import annotations

import pytest
from gating import SAMPLES, cli

TRACE = SAMPLES / "fully_async"


@pytest.mark.parametrize("command", ["analyze", "validate", "whatif", "advise"])
def test_a_file_is_no_trace_and_its_folder_is_named(command):
    done = cli(command, TRACE / "spans.arrow")
    assert done.code == 2
    assert done.err == (
        f"expected a trace folder, found the file `{TRACE / 'spans.arrow'}`, which is in the trace "
        f"`{TRACE}`; name that folder"
    )


def test_a_file_elsewhere_is_no_trace(tmp_path):
    (tmp_path / "x").write_text("x")
    done = cli("analyze", tmp_path / "x")
    assert done.code == 2
    assert done.err.endswith("; name the folder that a recording was written to")


def test_a_folder_of_traces_says_so_and_names_one():
    done = cli("analyze", SAMPLES / "provoked")
    assert done.code == 2
    assert (
        f" traces in `{SAMPLES / 'provoked'}`; name one, such as `{SAMPLES}/provoked/" in done.err
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", ""), ("validate", ""), ("whatif", ""), ("advise", ""), ("compare", ""),
        ("serve", ""), ("check", ""), ("check", TRACE, "--baseline", ""), ("baseline", "list", ""),
        ("baseline", "add", TRACE, "--to", ""), ("baseline", "add", "", "--to", "kept"),
        ("run", "--trace", "", "--", "true"),
    ],
)  # fmt: skip
def test_an_empty_argument_is_no_place(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli(*arguments)
    assert done.code == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("again", [str(TRACE), f"{TRACE}/", f"{SAMPLES}/sync/../fully_async"])
def test_a_run_beside_itself_is_said_to_be_one(again):
    done = cli("compare", TRACE, again)
    assert done.code == 2
    assert "found the same run given twice, `fully_async`" in done.err


def test_json_that_is_no_calibration_is_not_called_an_old_one():
    done = cli("whatif", TRACE / "golden.json")
    assert done.code == 2
    assert "no calibration at all" in done.err


def test_a_file_is_no_folder_of_baselines(tmp_path):
    (tmp_path / "x").write_text("{}")
    done = cli("baseline", "list", tmp_path / "x")
    assert done.code == 2
    assert "found a file" in done.err
    done = cli("check", TRACE, "--baseline", tmp_path, "--config", tmp_path / "nowhere")
    assert done.err == f"`{tmp_path / 'nowhere'}` cannot be read: no such file or directory"
