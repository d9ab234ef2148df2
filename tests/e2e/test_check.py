"""The gate end to end: real runs on the CPU, one of them slowed inside one phase by a sleep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from conftest import cli, profile
from test_modes import short

PLUGIN = Path(__file__).parent / "slow_phase"
#: Seconds that each update of the actor is delayed by; a step takes 2 to 5 s without.
DELAY_S = 10

#: Eight steps on a machine that is shared with others, whose speed varies by more than a half:
#: only a change as large as the delay is no chance.
CHECK = {
    "run_to_run": 0.25,
    "metrics": {"*": {"relative": 0.8}, "weight_sync_s": {"skip": True}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("check")


@pytest.fixture(scope="module")
def baseline(recorded, folder) -> Path:
    """A baseline of one accepted run: the sync run that the tests of the modes look at, too."""
    run = recorded("sync", **short("sync"))
    assert run.exit_code == 0, run.output[-4000:]
    (folder / "check.yaml").write_text(yaml.safe_dump(CHECK))
    done = cli("baseline", "add", run.folder, "--to", folder / "baselines")
    assert done.returncode == 0, done.stderr
    return folder / "baselines"


def again(folder: Path, name: str, **changes) -> Path:
    """Record the same run once more."""
    place = folder / name
    place.mkdir()
    done = cli("run", "--profile", profile("sync", place, **short("sync"), **changes))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return place / "trace"


def checked(trace: Path, baseline: Path) -> tuple[int, dict, str]:
    options = ("--baseline", baseline, "--config", baseline.parent / "check.yaml")
    result = baseline.parent / f"{trace.parent.name}.json"
    done = cli("check", trace, *options, "--result", result)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode, json.loads(result.read_text()), done.stdout


def test_an_unslowed_repeat_passes(baseline, folder):
    code, result, text = checked(again(folder, "repeat"), baseline)
    assert (code, result["verdict"]) == (0, "PASS"), text
    step = next(m for m in result["metrics"] if m["name"] == "step_time_s")
    assert step["verdict"] == "PASS"
    assert step["detectable"] > 0


def test_a_sleep_in_the_update_fails_and_is_named(baseline, folder):
    environment = {"PYTHONPATH": str(PLUGIN), "SLOW_UPDATE_ACTOR_S": str(DELAY_S)}
    code, result, text = checked(again(folder, "slow", environment=environment), baseline)
    assert (code, result["verdict"]) == (1, "FAIL"), text
    failed = {m["name"] for m in result["metrics"] if m["verdict"] == "FAIL"}
    assert "step_time_s" in failed, text
    leading = result["attribution"]["leading"]
    assert (leading["pool"], leading["state"]) == ("trainer", "train.update_actor"), text
    assert leading["after_s"] - leading["before_s"] == pytest.approx(DELAY_S, rel=0.3)
    assert "mostly trainer train.update_actor" in text
