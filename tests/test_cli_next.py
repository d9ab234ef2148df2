"""The last line of a command's output: the next one, which has to work as it stands."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from gating import SAMPLES, Ran, cli

from rlinsight.cli.shell import quoted

MODES = ("sync", "colocate_async", "separate_async", "fully_async")


def following(done: Ran) -> str:
    """Return the command after `next: `, which has to be the last line."""
    assert done.error is None, done.err
    last = done.out.splitlines()[-1]
    assert last.startswith("next: "), last
    return last.removeprefix("next: ")


def typed(command: str) -> Ran:
    program, *arguments = shlex.split(command)
    assert program == "rlinsight"
    return cli(*arguments)


@pytest.mark.parametrize("mode", MODES)
def test_what_advise_proposes_can_be_asked(mode):
    command = following(cli("advise", SAMPLES / mode, "--seeds", "2"))
    assert typed(command).code == 0, command


def test_a_change_of_mode_is_part_of_the_question():
    done = cli("advise", SAMPLES / "sync", "--seeds", "2")
    assert following(done).endswith("--set mode=colocate_async --set warm_up_batches=1")
    answer = typed(following(done))
    assert "trainer.v1.trainer_mode=colocate_async" in answer.out
    assert "trainer.v1.colocate_async.num_warmup_batches=1" in answer.out


@pytest.mark.parametrize("mode", ["separate_async", "fully_async", "nonsense"])
def test_a_mode_with_other_devices_is_refused(mode):
    done = cli("whatif", SAMPLES / "sync", "--set", f"mode={mode}")
    assert done.code == 2
    assert f"found `sync` to `{mode}`" in done.err


def test_an_accepted_run_is_not_to_be_accepted_again(tmp_path):
    trace, kept = SAMPLES / "fully_async", tmp_path / "kept"
    cli("baseline", "add", trace, "--to", kept)
    command = following(cli("check", trace, "--baseline", kept))
    assert command == f"rlinsight baseline list {kept}"
    assert typed(command).code == 0


@pytest.mark.parametrize("name", ["-dash", "new\nline", "it's", "[bold]x", "a b", "\udcff"])
def test_odd_names_are_one_word_of_one_line(name):
    word = quoted(name)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    found = done.stdout.decode("utf-8", "surrogateescape")
    assert found == ("./-dash" if name == "-dash" else name)


def test_a_trace_whose_name_begins_with_a_dash(tmp_path, monkeypatch):
    shutil.copytree(SAMPLES / "fully_async", tmp_path / "-dash")
    monkeypatch.chdir(tmp_path)
    command = following(cli("analyze", "--brief", "--", "-dash"))
    assert typed(command).code == 0, command
    assert Path("report.html").exists()


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("true", 0)])
def test_a_run_that_recorded_nothing_does_not_lead_in_a_circle(tmp_path, monkeypatch, script, code):
    monkeypatch.chdir(tmp_path)
    done = cli("run", "--trace", "empty", "--", "sh", "-c", script)
    assert done.code == code
    assert "the last lines of its output" not in done.out
    assert ("it printed nothing" in done.out) == (code != 0)
    assert following(done) == "rlinsight doctor"
    for options in ([], ["--json"]):
        checked = cli("validate", "empty", *options)
        assert checked.code == 2
        assert "found none in any table" in checked.err
    assert checked.json["ok"]


@pytest.mark.parametrize("mode", MODES)
def test_a_listing_of_knobs_goes_on_with_a_question(mode):
    command = following(cli("whatif", SAMPLES / mode, "--knobs"))
    assert typed(f"{command} --seeds 1 --versions 4").code == 0, command


def test_a_rule_goes_on_with_advice():
    done = cli("advise", SAMPLES / "sync", "--explain", "long_tail")
    assert following(done) == f"rlinsight advise {SAMPLES / 'sync'} --why-not"


def test_a_plan_is_followed_by_the_command_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cli(
        "run", "--check", "--trace", "a b", "--stall-timeout", "30", "--", "sh", "-c", "-x y"
    )
    assert following(done) == "rlinsight run --trace 'a b' --stall-timeout 30.0 -- sh -c '-x y'"
    config = SAMPLES.parent / "examples" / "sync.yaml"
    done = cli("tune", config, "--dry-run", "--no-smoke", "--max-runs", "3")
    assert following(done) == f"rlinsight tune --max-runs 3 --no-smoke {config}"


def test_an_empty_baseline_is_to_be_added_to(tmp_path):
    command = following(cli("baseline", "list", tmp_path))
    assert command == f"rlinsight baseline add TRACE --to {tmp_path}"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("analyze", ("--markdown", "--html")),
        ("advise", ("--markdown",)),
        ("whatif", ("--save", "--markdown", "--html")),
        ("compare", ("--markdown", "--html")),
        ("check", ("--result", "--junit", "--markdown", "--gitlab", "--history")),
    ],
)
def test_files_that_were_written_are_named(command, options, tmp_path, monkeypatch):
    trace = SAMPLES / "fully_async"
    more = {
        "check": ("--baseline", "kept"), "compare": (SAMPLES / "sync",), "advise": ("--seeds", "2"),
        "whatif": ("--seeds", "1", "--versions", "4"),
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    cli("baseline", "add", trace, "--to", "kept")
    asked = [word for option in options for word in (option, f"out{option}")]
    done = cli(command, trace, *more.get(command, ()), *asked)
    assert done.error is None, done.err
    for option in options:
        assert f"\nwrote out{option}\n" in done.out
        assert Path(f"out{option}").exists()
