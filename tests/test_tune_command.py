"""`rlinsight tune` as a command: dry runs, plans, and logs that it continues."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from gating import cli
from tuning_logs import FEWER, SMOKE, STALER, baseline, finding, log

from rlinsight.report.tune.plan import plan
from rlinsight.runs.tune.decide import Limits
from rlinsight.runs.tune.log import Candidate, Judged, Log, Measured, Record, save

DOCS = (Path(__file__).parent.parent / "docs/tune.md").read_text()


@pytest.fixture
def config(tmp_path) -> Path:
    example = Path(__file__).parent.parent / "examples/fully_async.yaml"
    path = tmp_path / "job.yaml"
    path.write_text(example.read_text())
    return path


def test_a_dry_run_says_what_would_be_done_and_does_nothing(config, tmp_path):
    done = cli("tune", config, "--to", tmp_path / "t", "--dry-run", "--max-hours", "2")
    assert done.code == 0
    assert "at most 8 runs of full size, at most 2 hours" in done.out
    assert "next run: smoke, preflight passed" in done.out
    assert not (tmp_path / "t").exists()
    assert cli("tune", config, "--to", tmp_path / "t", "--dry-run", "--json").json["action"] == (
        "smoke"
    )


def test_a_dry_run_names_what_is_held(config, tmp_path):
    done = cli("tune", config, "--to", tmp_path / "t", "--dry-run", "--hold", "resources",
               "--hold", "async_training.staleness_threshold")  # fmt: skip
    assert "left as it is: resources, async_training.staleness_threshold" in done.out
    assert done.out.splitlines()[-1].count("--hold ") == 2


@pytest.mark.parametrize(
    ("held", "near"),
    [
        ("async_training.stalness_threshold", "async_training.staleness_threshold"),
        ("resources.rollout.node", "resources.rollout.nodes"),
    ],
)
def test_a_misspelt_key_is_not_held(config, tmp_path, held, near):
    refused = cli("tune", config, "--to", tmp_path / "t", "--dry-run", "--hold", held)
    assert refused.code == 2
    assert f"`{held}` is no key or section" in refused.err
    assert f"did you mean `{near}`?" in refused.err


def test_a_plan_names_what_is_left_out_on_the_way():
    other = finding("other", "trainer.test_freq=10", tier=2)
    found = plan(log(SMOKE, baseline(STALER, FEWER, other)), Limits(),
                 lambda d: "no" if d["resources"]["rollout"]["nodes"] == 3 else None)  # fmt: skip
    assert "left out: fewer: no" in found.lines
    assert any(line.startswith("left out: staler: it may cost") for line in found.lines)
    assert any(line.startswith("next run: other (tier 2") for line in found.lines)


def test_another_configuration_does_not_continue_a_log(config, tmp_path):
    document = {"stall_timeout_s": 1800.0, **yaml.safe_load(config.read_text())}
    document.pop("trace", None)
    folder = tmp_path / "t"
    save(log(folder=str(folder), document={**document, "steps": 99}), folder / "tuning.json")
    refused = cli("tune", config, "--to", folder)
    assert refused.code == 2
    assert "is not the configuration that" in refused.err


def test_the_command_ends_with_what_is_kept(config, tmp_path):
    """The log says that the budget is used: nothing is run, and the result is shown."""
    folder = tmp_path / "t"
    document = {"stall_timeout_s": 1800.0, **yaml.safe_load(config.read_text())}
    document.pop("trace", None)
    save(log(SMOKE, baseline(), folder=str(folder), document=document), folder / "tuning.json")
    done = cli("tune", config, "--to", folder)
    assert done.code == 0
    assert "Stopped: plateau: Nothing to gain" in done.out
    assert done.out.splitlines()[-1] == f"next: rlinsight run --profile {folder}/best.yaml"


def test_the_log_is_documented():
    section = DOCS.split("## JSON")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", section))
    for part in (Log, Record, Measured, Judged, Candidate):
        assert {field.name for field in fields(part)} <= listed, part
    json.dumps(log(SMOKE, baseline(FEWER)).to_dict(), allow_nan=False)
