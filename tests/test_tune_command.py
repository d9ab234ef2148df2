"""`rlinsight tune` as a command: dry runs, plans, and logs that it continues."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from gating import cli
from tuning_logs import FEWER, SMOKE, STALER, baseline, finding, log, record

from rlinsight.errors import PreflightError
from rlinsight.report.tune.plan import plan
from rlinsight.runs.tune.begin import refusal
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.lock import alone
from rlinsight.runs.tune.log import Candidate, Judged, Log, Measured, Record
from rlinsight.runs.tune.store import save

DOCS = (Path(__file__).parent.parent / "docs/tune.md").read_text()


def document_of(config: Path) -> dict:
    """The configuration as the log has it."""
    document = {"stall_timeout_s": 1800.0, **yaml.safe_load(config.read_text())}
    document.pop("trace", None)
    return document


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
    assert "left out: fewer: preflight refuses it: no" in found.lines
    assert any(line.startswith("left out: staler: it may cost") for line in found.lines)
    assert any(line.startswith("next run: other (tier 2") for line in found.lines)


def test_a_run_under_way_is_not_planned_once_more(config, tmp_path):
    """Its ports are in use and its trace is there, which is no reason to refuse the plan."""
    folder, document = tmp_path / "t", document_of(config)
    under_way = record(0, "baseline", None, began_s=0.0, ended_s=None)
    save(log(under_way, folder=str(folder), document=document), folder / "tuning.json")
    done = cli("tune", config, "--to", folder, "--dry-run", "--json")
    assert (done.json["action"], done.json["document"]) == ("wait", None)
    assert done.json["lines"][-1].startswith("first: run 0 (baseline), which was begun")


def test_a_second_loop_in_a_folder_is_refused_and_a_dry_run_is_not(config, tmp_path):
    with alone(tmp_path / "t", print):
        refused = cli("tune", config, "--to", tmp_path / "t")
        assert cli("tune", config, "--to", tmp_path / "t", "--dry-run").code == 0
    assert refused.code == 2
    assert f"found `rlinsight tune` as process {os.getpid()} on" in refused.err


def test_a_plan_that_preflight_refuses_is_an_error():
    with pytest.raises(PreflightError, match="no model"):
        plan(log(), Limits(), lambda _document: "no model")


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf"])
def test_no_hours_are_no_budget(config, tmp_path, hours):
    refused = cli("tune", config, "--to", tmp_path / "t", "--max-hours", hours)
    assert refused.code == 2
    assert "expected hours above 0 after `--max-hours`" in refused.err
    assert not (tmp_path / "t").exists()


def test_the_name_of_a_rule_is_checked(config, tmp_path):
    refused = cli("tune", config, "--to", tmp_path / "t", "--despite", "stale_shards")
    assert refused.code == 2
    assert "found `stale_shards`; did you mean `stale_shard`?" in refused.err
    dry = cli("tune", config, "--to", tmp_path / "t", "--despite", "stale_shard", "--dry-run")
    assert "no reason to stop: stale_shard" in dry.out


def test_preflight_looks_from_where_the_runs_are_started(config, tmp_path, monkeypatch):
    """Relative paths of the configuration are those of the first call, wherever this one is."""
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "data").mkdir(parents=True)
    here.mkdir()
    (there / "data/train.parquet").touch()
    files = {"train": "data/train.parquet", "val": "data/train.parquet"}
    document = {**document_of(config), "data": files, "model": "a/model"}
    monkeypatch.chdir(here)
    assert "not found" not in str(refusal(log(cwd=str(there), folder=str(there)), document))
    assert "not found" in str(refusal(log(cwd=str(here), folder=str(there)), document))
    assert Path.cwd() == here
    gone = refusal(log(cwd=str(tmp_path / "gone"), folder=str(there)), document)
    assert gone.startswith(f"the runs are started in `{tmp_path}/gone`, which cannot be used")


def test_another_configuration_does_not_continue_a_log(config, tmp_path):
    document, folder = document_of(config), tmp_path / "t"
    save(log(folder=str(folder), document={**document, "steps": 99}), folder / "tuning.json")
    refused = cli("tune", config, "--to", folder)
    assert refused.code == 2
    assert "is not the configuration that" in refused.err


def test_the_command_ends_with_what_is_kept(config, tmp_path):
    """The log says that the budget is used: nothing is run, and the result is shown."""
    document, folder = document_of(config), tmp_path / "t"
    save(log(SMOKE, baseline(), folder=str(folder), document=document), folder / "tuning.json")
    done = cli("tune", config, "--to", folder)
    assert done.code == 0
    assert "Stopped: plateau: Nothing to gain" in done.out
    assert done.out.splitlines()[-1] == f"next: rlinsight run --profile {folder}/best.yaml"


def test_the_log_is_documented():
    section = DOCS.split("## JSON")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", section))
    for part in (Limits, Log, Record, Measured, Judged, Candidate):
        assert {field.name for field in fields(part)} <= listed, part
    json.dumps(log(SMOKE, baseline(FEWER)).to_dict(), allow_nan=False)
