"""`rlinsight doctor`: one line per item, and what to do."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sysconfig
from pathlib import Path

import pytest

from rlinsight.collectors.verl.hooks import all_hooks
from rlinsight.runs import doctor
from rlinsight.runs.doctor import Line, examine, worst

CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"
ITEMS = ["python", "verl", "ray", "vllm", "devices", "entry point", "hooks"]


def test_this_machine_is_examined_item_by_item():
    lines = {line.name: line for line in examine()}
    assert list(lines)[: len(ITEMS)] == ITEMS
    assert list(lines)[-3:] == ["shared memory", "disk", "ray cluster"]
    assert lines["verl"] == Line("verl", "ok", "0.9.1")
    assert lines["entry point"].status == "ok"


def test_the_worst_item_decides():
    ok, warning, missing = (Line("x", status, "") for status in ("ok", "warning", "missing"))
    assert worst([ok, warning, ok]) == "warning"
    assert worst([ok, missing, warning]) == "missing"


def test_the_command_prints_a_result_and_the_next_command(tmp_path):
    done = subprocess.run(
        [CLI, "doctor"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    result, following = done.stdout.splitlines()[-2:]
    assert result.startswith("ready")
    assert following == "next: rlinsight run --profile config.yaml --check"


def test_the_json_form_has_every_item(tmp_path):
    done = subprocess.run(
        [CLI, "doctor", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    document = json.loads(done.stdout)
    names = [line["name"] for line in document["lines"]]
    assert names[: len(ITEMS)] == ITEMS
    assert [hook["name"] for hook in document["hooks"]] == [hook.name for hook in all_hooks()]
    assert {hook["status"] for hook in document["hooks"]} == {"ok"}


@pytest.mark.parametrize(("module", "status"), [("pynvml", "warning"), ("pynwml", "ok")])
def test_a_gpu_that_nothing_can_sample_is_said(module, status, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(doctor, "local_devices", lambda facts: 2 * (facts.config.device == "cuda"))
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == module else find("json")
    )
    line = doctor._devices()
    assert (line.status, line.found) == (status, "2 cuda")
    assert (line.advice is not None) is (status == "warning")


def test_what_is_missing_is_named_and_is_a_failure(tmp_path):
    # A plugin policy that leaves us out is what most often goes wrong.
    done = subprocess.run(
        [CLI, "doctor"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "VERL_USE_EXTERNAL_PLUGINS": "none"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "missing entry point" in done.stdout
    assert "VERL_USE_EXTERNAL_PLUGINS=none keeps verl from loading rlinsight" in done.stdout
    assert "cannot record a verl run here yet: entry point" in done.stdout
