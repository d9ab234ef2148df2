"""The runs that the simulator is held against: settings, what was measured, and the table."""

from __future__ import annotations

import json
import runpy
from collections import Counter
from pathlib import Path

import pytest
from dotted_keys import nested

from rlinsight.analyzers.simulate import Calibration, Knobs
from rlinsight.analyzers.simulate.read_config import read_config
from rlinsight.analyzers.simulate.reproduce import Recorded
from rlinsight.analyzers.simulate.validation import check_run, summarize
from rlinsight.runs.config import RunConfig

ROOT = Path(__file__).parent.parent
VALIDATION = ROOT / "benchmarks" / "validation"
DOCS = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
RECORD = runpy.run_path(str(VALIDATION / "record.py"))
RUNS = RECORD["settings"]()["runs"]
MEASURED = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in (VALIDATION / "measured").glob("*.json")
}


def knobs_of(name: str) -> dict:
    profile = RECORD["profile_of"](name)
    knobs = read_config(profile["mode"], nested(profile["overrides"]))
    for pool in ("trainer", "rollout"):
        nodes = profile["resources"].get(pool)
        if nodes:
            knobs[f"{pool}_devices"] = nodes["nodes"] * nodes["devices_per_node"]
    return knobs | RUNS[name].get("work", {})


@pytest.mark.parametrize("name", RUNS)
def test_every_setting_is_a_run(name):
    config = RunConfig.model_validate(RECORD["profile_of"](name))
    assert config.device == ("cpu" if RUNS[name]["profile"] == "cpu" else "emulated")


def test_there_are_enough_of_them():
    others = Counter(run["profile"] for name, run in RUNS.items() if name != run["profile"])
    assert others["cpu"] >= 3
    assert others["fully_async"] >= 12
    assert others["separate_async"] >= 4
    assert others["colocate_async"] >= 2
    values = {knobs_of(name).get("staleness_threshold") for name in RUNS}
    assert {0.0, 0.1, 0.3, 0.5, 0.7} <= values
    varied = {
        "rollout_devices": {2, 4, 8},
        "sync_step": {1, 4, 8},
        "trainer_validates": {True, False},
        "partial_rollout": {True, False},
        "validation_interval": {None, 4},
        "length_tail": {None, 1.375},
    }
    names = [name for name, run in RUNS.items() if run["profile"] == "fully_async"]
    for knob, wanted in varied.items():
        assert wanted <= {knobs_of(name).get(knob) for name in names}, knob


@pytest.mark.parametrize("name", MEASURED)
def test_what_was_measured_is_of_the_setting(name):
    knobs = Knobs(**MEASURED[name]["knobs"])
    assert MEASURED[name]["run"] == name
    for knob, value in knobs_of(name).items():
        assert getattr(knobs, knob) == value, knob
    calibration = MEASURED[name]["calibration"]
    assert (calibration is not None) == (RUNS[name]["profile"] == name)


def test_every_measured_run_is_a_row_of_the_table():
    for name, run in MEASURED.items():
        which = "real runs" if run["profile"] == "cpu" else "other settings"
        table = DOCS.split(f"<!-- {which}: begin -->")[1].split(f"<!-- {which}: end -->")[0]
        assert (f"| {name} |" in table) == (run["calibration"] is None), name


@pytest.mark.parametrize("mode", ["fully_async", "separate_async", "colocate_async"])
def test_measured_runs_are_predicted(mode):
    """What is asked of the simulator: 5 % in the median, 12 % at worst, waits within 5 points."""
    runs = [run for run in MEASURED.values() if run["profile"] == mode]
    calibration = Calibration.from_dict(
        next(run["calibration"] for run in runs if run["calibration"] is not None)
    )
    found = summarize(
        [
            check_run(
                run["run"], calibration, Recorded(**run["recorded"]), Knobs(**run["knobs"]),
                (run["warm_up_versions"], run["versions"]), seeds=range(20),
            )
            for run in runs
            if run["calibration"] is None
        ]
    )  # fmt: skip
    assert len(found.rows) >= {"fully_async": 12, "separate_async": 4, "colocate_async": 2}[mode]
    assert found.median_error <= 0.05
    assert found.worst_error <= 0.12
    waits = {row.run: abs(row.wait_error) for row in found.rows}
    assert not {run: error for run, error in waits.items() if error > 0.05}
    assert found.same_order == 1.0
