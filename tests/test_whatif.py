"""`rlinsight whatif`: the real command on a recorded run, and its renderers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rlinsight
from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate import Calibration, Knobs
from rlinsight.analyzers.simulate.outside import _PER_DOUBLING
from rlinsight.analyzers.simulate.overrides import OVERRIDES, WORKLOAD_KNOBS
from rlinsight.analyzers.simulate.predict import Effect, Prediction
from rlinsight.cli import app
from rlinsight.errors import RlinsightError
from rlinsight.report.whatif.answer import Answer
from rlinsight.report.whatif.sections import signed
from rlinsight.webapp.whatif import sliders

ROOT = Path(__file__).parent.parent
SAMPLE = str(ROOT / "sample_traces" / "fully_async")
DOCS = (ROOT / "docs" / "simulator.md").read_text()
FAST = ["--seeds", "2", "--versions", "6"]


def whatif(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["whatif", *arguments], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_change_is_answered_beside_the_run_as_it_was():
    text = whatif(SAMPLE, "--set", "staleness_threshold=0", *FAST)
    assert re.search(r"staleness_threshold = 0: -\d+\.\d % \(-\d", text)
    assert "Objective: both" in text
    assert "Overrides: async_training.staleness_threshold=0" in text
    assert "The recorded run, simulated" in text
    assert text.splitlines()[-1].startswith("next: rlinsight whatif ")


def test_how_well_the_costs_fit_is_printed():
    text = whatif(SAMPLE, *FAST)
    assert "How well it fits" in text
    assert re.search(r"decode\.per_running_s +0 s .*not identifiable", text)
    assert re.search(r"costs\.reward_s +30\.2 ms .*the same .*fits", text)
    assert "decoding explains 90.5 % of the variance of request durations" in text


def test_as_many_versions_are_simulated_as_asked_for():
    text = whatif(SAMPLE, "--versions", "7", "--seeds", "1")
    assert "7 versions x 1 seed." in text
    found = json.loads(whatif(SAMPLE, "--versions", "7", "--seeds", "1", "--json"))
    assert found["prediction"]["versions"] == 7
    plain = json.loads(whatif(SAMPLE, "--seeds", "1", "--json"))
    assert plain["compared"] == found["compared"]  # always over the recorded versions


def test_the_objective_is_printed():
    text = whatif(SAMPLE, "--set", "sync_step=1", "--objective", "wall-clock", *FAST)
    assert "Objective: wall-clock." in text


def test_a_sweep_gives_a_table_and_a_plot(tmp_path):
    page, notes = tmp_path / "w.html", tmp_path / "w.md"
    text = whatif(SAMPLE, "--sweep", "staleness_threshold=0,0.5", "--html", str(page),
                  "--markdown", str(notes), *FAST)  # fmt: skip
    assert "Highest per-device throughput: staleness_threshold=0.5." in text
    assert f"next: open {page}" in text
    assert "plotly" in page.read_text().lower()
    assert "<script src=" not in page.read_text()
    assert "| staleness\\_threshold |" in notes.read_text()


def test_json_holds_what_the_documentation_lists():
    found = json.loads(
        whatif(SAMPLE, "--set", "mini_batch=2", "--sweep", "sync_step=1,2", "--json", *FAST)
    )
    section = DOCS.split("## JSON")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", section, re.M))))
    assert set(found) == listed
    assert found["effect"]["after"]["knobs"]["mini_batch"] == 2
    assert [point["changes"] for point in found["sweep"]["points"]] == [
        {"sync_step": 1}, {"sync_step": 2},
    ]  # fmt: skip
    assert "groups" in found["calibration"]["lengths"]
    check = found["prediction"]["lag_check"]
    assert check["difference"] == pytest.approx(check["simulated"] - check["expected"])


def test_a_saved_calibration_answers_without_its_trace(tmp_path):
    saved = tmp_path / "calibration.json"
    whatif(SAMPLE, "--save", str(saved), "--knobs")
    text = whatif(str(saved), "--set", "async_training.staleness_threshold=0.7", *FAST)
    assert "async_training.staleness_threshold = 0.7" in text
    assert "The recorded run, simulated" not in text


def test_knobs_are_listed_with_their_overrides():
    text = whatif(SAMPLE, "--knobs")
    assert re.search(r"staleness_threshold +0\.5 +async_training\.staleness_threshold", text)


@pytest.mark.parametrize("key", ["sync_step", "trainer.v1.separate_async.parameter_sync_step"])
def test_the_train_batch_of_separate_async_follows_its_cycle(key):
    """verl refuses a train batch that is not the updates between syncs x the mini-batch."""
    sample = str(ROOT / "sample_traces/separate_async")
    text = whatif(sample, "--set", f"{key}=4", *FAST)
    assert "parameter_sync_step=4 data.train_batch_size=16" in text
    calibration = Calibration.from_trace(rlinsight.open(sample))
    shown = {slider.knob.name for slider in sliders(calibration, {})}
    assert "sync_step" in shown
    assert "train_batch" not in shown


def test_devices_have_no_single_override():
    text = whatif(SAMPLE, "--set", "rollout_replicas=2", *FAST)
    assert "No single override sets rollout_replicas" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "staleness_threshold"], "expected `--set KNOB=VALUE`"),
        (["--set", "bogus=1"], "found `bogus`"),
        (["--sweep", "sync_step"], "expected `--sweep KNOB=A,B,C`"),
        (
            ["--set", "rollout_devices=2", "--set", "rollout_replicas=3"],
            "one value or sweep of `rollout_devices`",
        ),
        (
            ["--set", "async_training.staleness_threshold=0.3", "--set", "staleness_threshold=0.4"],
            "`--set async_training.staleness_threshold` and `--set staleness_threshold`",
        ),
        (["--set", "sync_step=1", "--set", "sync_step=2"], "one value or sweep of `sync_step`"),
        (["--sweep", "sync_step=1,2", "--set", "sync_step=3"], "`--set sync_step` and `--sweep"),
        (["--sweep", "sync_step=1,2", "--sweep", "sync_step=3"], "one value or sweep of"),
        (["--sweep", "staleness_threshold=abc,1"], "a finite number, found 'abc'"),
        (["--sweep", "staleness_threshold=0,-1"], "of at least 0, found -1"),
        (["--sweep", "rollout_replicas=0.5"], "`rollout_replicas` to be a whole number"),
        (["--sweep", "mini_batch=0"], "of at least 1, found 0"),
        (["--sweep", "sync_step=1,,2"], "a value between all commas"),
        (["--sweep", "sync_step=1,2,1"], "found `1` twice"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments, message):
    with pytest.raises(RlinsightError, match=message):
        whatif(SAMPLE, *arguments, *FAST)


def test_what_only_this_job_cannot_have_keeps_its_reason_in_its_row():
    found = json.loads(whatif(SAMPLE, "--sweep", "tensor_parallel=1,2", "--json", *FAST))
    possible, impossible = found["sweep"]["points"]
    assert possible["prediction"] is not None
    assert "a multiple of `tensor_parallel`" in impossible["reason"]


def test_a_file_that_is_no_calibration_is_refused(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"schema_version": 1}')
    with pytest.raises(RlinsightError, match="expected a calibration"):
        whatif(str(file))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (Estimate(0.123, 0.091, 0.152), "+12.3 % (+9.1 to +15.2)"),
        (Estimate(-0.05), "-5.0 %"),
        (Estimate(None), "unknown"),
    ],
)
def test_changes_are_signed(change, text):
    assert signed(change) == text


# ---- documentation -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", OVERRIDES)
def test_every_knob_and_override_is_documented(mode):
    for name, key in OVERRIDES[mode].items():
        assert f"| `{name}` |" in DOCS, name
        assert f"`{key}`" in DOCS, key
    for name in WORKLOAD_KNOBS:
        assert f"| `{name}` |" in DOCS


@pytest.mark.parametrize("part", [Prediction, Calibration, Answer, Effect])
def test_every_key_is_documented(part):
    for name in part.__dataclass_fields__:
        assert f"`{name}`" in DOCS or f"`{name}." in DOCS, name


def test_every_part_of_a_calibration_is_documented():
    from rlinsight.analyzers.simulate.calibration import Costs, Decode, Training, Uncertainty

    for prefix, part in (("decode", Decode), ("training", Training), ("costs", Costs),
                         ("uncertainty", Uncertainty)):  # fmt: skip
        for name in part.__dataclass_fields__:
            assert f"`{prefix}.{name}`" in DOCS, name


def test_every_allowance_is_documented():
    for name, share in _PER_DOUBLING.items():
        assert re.search(rf"\| `{name}` \| .* \| {share:.0%} per doubling \|".replace(
            "%", " %"), DOCS), name  # fmt: skip


def test_every_knob_is_in_the_table():
    for name in Knobs.__dataclass_fields__:
        assert name == "mode" or f"| `{name}` |" in DOCS, name
