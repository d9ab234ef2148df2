"""The snippets for CI, run as their shell steps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from gating import ROOT

BIN = sysconfig.get_path("scripts")


def shell(script: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess:
    base = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder)}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, env=base | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def action(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run the steps of action.yml as the runner does; return exit code, outputs and log."""
    document = yaml.safe_load((ROOT / "action.yml").read_text())
    known = {name: str(item.get("default", "")) for name, item in document["inputs"].items()}
    assert inputs.keys() <= known.keys()
    values = known | inputs
    output, log, code = folder / "output", "", 0
    for step in document["runs"]["steps"]:
        condition = step.get("if")
        assert condition in (None, "inputs.install != ''")
        if condition and not values["install"]:
            continue
        environment = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: values[m[1]], text)
            for name, text in step["env"].items()
        }
        assert "${{" not in step["run"]
        environment |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(folder / "sum")}
        done = shell(step["run"], folder, environment)
        code, log = done.returncode, log + done.stdout + done.stderr
    lines = output.read_text().splitlines() if output.exists() else []
    return code, dict(line.split("=", 1) for line in lines), log


@pytest.mark.parametrize(
    ("run", "shadow", "code", "verdict"),
    [
        ("equal", "false", 0, "PASS"),
        ("slow", "false", 1, "FAIL"),
        ("slow", "true", 0, "FAIL"),
    ],
)
def test_the_github_action(runs, baseline, tmp_path, run, shadow, code, verdict):
    inputs = {"trace": str(runs[run]), "baseline": str(baseline), "shadow": shadow, "install": ""}
    found, outputs, log = action(tmp_path, **inputs)
    assert (found, outputs["verdict"]) == (code, verdict), log
    assert "### " in (tmp_path / "sum").read_text()
    names = {path.name for path in (tmp_path / outputs["reports"]).iterdir()}
    assert names == {"result.json", "junit.xml", "comment.md", "trend.html"}
    assert ("::error" in log) == (verdict == "FAIL" and shadow == "false")


def test_the_github_action_on_what_cannot_be_compared(runs, tmp_path):
    inputs = {"trace": str(runs["equal"]), "baseline": "nowhere", "install": ""}
    code, outputs, log = action(tmp_path, **inputs)
    assert (code, outputs["verdict"]) == (2, "ERROR")
    assert "::error title=rlinsight check%3A ERROR::" in log


@pytest.mark.parametrize(
    ("given", "installed"), [(".", "/the/action"), ("git+https://host/x y", "git+https://host/x y")]
)
def test_the_github_action_installs_its_own_copy_or_what_it_is_given(tmp_path, given, installed):
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][0]
    pip = tmp_path / "python"
    pip.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    pip.chmod(0o755)
    environment = {
        "INSTALL": given, "GITHUB_ACTION_PATH": "/the/action", "PATH": f"{tmp_path}:/usr/bin:/bin",
    }  # fmt: skip
    done = shell(step["run"], tmp_path, environment)
    assert done.stdout.splitlines() == ["-m", "pip", "install", "--quiet", installed], done.stderr


def test_an_input_of_the_action_is_never_run_as_a_command(runs, tmp_path):
    inputs = {"trace": "x$(touch hacked)", "baseline": "`touch hacked`", "install": ""}
    assert action(tmp_path, **inputs)[0] == 2
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(("run", "code"), [("equal", 0), ("slow", 1)])
def test_the_gitlab_job(runs, baseline, tmp_path, run, code):
    job = yaml.safe_load((ROOT / "docs/ci/gitlab.yml").read_text())["rlinsight-check"]
    # The job's own would win over those of the file that includes it.
    assert "variables" not in job
    variables = {
        "RLINSIGHT_TRACE_DIR": str(runs[run]),
        "RLINSIGHT_BASELINE": str(baseline),
        "RLINSIGHT_INSTALL": "",
    }
    done = shell("\n".join([*job["before_script"], *job["script"]]), tmp_path, variables)
    assert done.returncode == code, done.stdout + done.stderr
    reports = job["artifacts"]["reports"]
    assert ET.parse(tmp_path / reports["junit"]).getroot()[0].get("failures") == str(3 * code)
    assert isinstance(json.loads((tmp_path / reports["codequality"]).read_text()), list)
