"""`rlinsight compare`: recorded runs side by side."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from gating import cli, gate_runs
from timelines import S, Timeline

import rlinsight
from rlinsight.analyzers.compare.compare import compare
from rlinsight.analyzers.compare.configs import Variable, differences, variable
from rlinsight.analyzers.compare.entrant import Entrant, entrant
from rlinsight.analyzers.compare.guard import losses
from rlinsight.analyzers.compare.progress import Common, Mark, common, window_of
from rlinsight.analyzers.compare.result import ComparedRun, Comparison
from rlinsight.errors import RlinsightError, TraceError
from rlinsight.trace.manifest import update_manifest

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_traces"
DOCS = (ROOT / "docs/compare.md").read_text()
KNOB = "async_training.staleness_threshold"


def config(staleness: float, **more) -> dict:
    return {"async_training": {"staleness_threshold": staleness}, **more}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Runs of staleness 0.3, 0.5, 0.7 (the wait falls, then stays), and one of longer responses."""
    folder = tmp_path_factory.mktemp("runs")
    quiet = {"noise": 0.01, "length_spread": 0.1}
    for i, (staleness, wait) in enumerate(((0.3, 1.0), (0.5, 0.4), (0.7, 0.4))):
        kind = gate_runs.Kind(slow={"wait_samples": wait}, **quiet)
        gate_runs.write(folder / f"s{staleness}", kind, seed=i, config=config(staleness))
    drifted = gate_runs.Kind(longer=1.15, steps=40, length_spread=0.1, noise=0.01)
    gate_runs.write(folder / "longer", drifted, seed=7, config=config(0.3))
    return folder


def cell(found: Comparison, metric: str, run: str):
    place = [one.name for one in found.runs].index(run)
    return found.row(metric).cells[place]


def opened(*paths: Path) -> list:
    return [entrant(path.name, rlinsight.open(path)) for path in paths]


@pytest.fixture(scope="module")
def compared(runs) -> Comparison:
    return compare(opened(*(runs / name for name in ("s0.3", "s0.5", "s0.7"))))


def test_what_is_really_faster_is_said_to_be(compared):
    assert cell(compared, "tokens_per_s_per_device", "s0.5").direction == "better"
    assert cell(compared, "wait.trainer", "s0.7").direction == "better"
    assert cell(compared, "lag_versions", "s0.5").direction == "within"


def test_the_reference_has_a_value_and_no_change(compared):
    mine = cell(compared, "tokens_per_s_per_device", "s0.3")
    assert mine.value is not None
    assert mine.change is None
    assert mine.own_low < mine.value < mine.own_high


def test_only_what_differs_is_listed(compared):
    assert compared.differing == {KNOB: ("0.3", "0.5", "0.7")}


def test_one_varied_number_has_a_curve_with_its_plateau(compared):
    assert compared.series.variable == Variable(KNOB, (0.3, 0.5, 0.7), ())
    for metric in ("tokens_per_s_per_device", "wait.trainer"):
        curve = next(one for one in compared.series.responses if one.metric == metric)
        assert curve.plateau.start == 0.5
        assert curve.gains[0].real


def test_longer_responses_are_drift_and_no_regression(runs):
    found = compare(opened(runs / "s0.3", runs / "longer"))
    raw = cell(found, "step_time_s", "longer")
    assert raw.value > raw.raw_reference * 1.01
    assert raw.direction == "within"
    assert "length" in raw.matched


def test_runs_of_unequal_length_are_compared_over_the_steps_they_share(runs):
    found = compare(opened(runs / "s0.3", runs / "longer"))
    assert (found.common.unit, found.common.last) == ("steps", 24)
    assert found.runs[1].steps[1] == 40
    assert found.runs[1].windows <= 24


def test_another_reference_turns_the_changes_around(runs):
    found = compare(opened(runs / "s0.3", runs / "s0.5"), reference="s0.5")
    assert cell(found, "tokens_per_s_per_device", "s0.3").direction == "worse"
    with pytest.raises(RlinsightError, match=r"a reference among `s0\.3`, `s0\.5`"):
        compare(opened(runs / "s0.3", runs / "s0.5"), reference="x")


def test_a_smoke_run_is_no_measurement(tmp_path):
    kind = gate_runs.Kind()
    path = gate_runs.write(tmp_path / "a", kind, 1)
    update_manifest(path, notes={"smoke": True})
    with pytest.raises(TraceError, match="smoke run"):
        entrant("a", rlinsight.open(path))


# ---- which variable ----------------------------------------------------------------------------


def test_keys_that_follow_are_part_of_the_variable():
    found = {"data.train_batch_size": ("16", "32", "64"), "x.parameter_sync_step": ("1", "2", "4")}
    assert variable(found) == Variable(
        "x.parameter_sync_step", (1, 2, 4), ("data.train_batch_size",)
    )


def test_the_devices_of_a_pool_are_one_variable():
    rows = {
        "hardware.rollouter": ("2 x cuda", "4 x cuda", "8 x cuda"),
        "rollout.n_gpus_per_node": ("2", "4", "4"),
        "rollout.nnodes": ("1", "1", "2"),
    }
    found = variable(rows)
    assert (found.key, found.values) == ("hardware.rollouter", (2, 4, 8))


def test_two_variables_are_no_series_unless_one_is_asked_for():
    rows = {"a.step": ("1", "2", "3", "3"), "b.size": ("8", "8", "8", "16")}
    assert "beside a.step, b.size vary on their own" in variable(rows)
    assert variable(rows, "step").values == (1, 2, 3, 3)
    assert "`x` is no number that differs" in variable(rows, "x")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"a": ("1", "2")}, "3 values or more"),
        ({"a": ("x", "y", "z")}, "3 values or more"),
        ({"mode": ("sync", "sync", "fully_async"), "a": ("1", "2", "3")}, "different modes"),
    ],
)
def test_what_is_no_series_says_why(rows, why):
    assert why in variable(rows)


def test_absent_is_a_value_of_its_own():
    assert differences([{"mode": "sync", "config.a": "1"}, {"mode": "sync"}]) == {"a": ("1", None)}


# ---- the common part ---------------------------------------------------------------------------


def marks(first: int, last: int, size: int = 8) -> list[Mark]:
    return [Mark(i * 10, i * 10 + 10, i, i * size) for i in range(first, last + 1)]


def test_the_common_part_is_what_all_have():
    one, other = marks(3, 30), marks(5, 12)
    part = common([one, other])
    assert part == Common(5, 12, "steps")
    assert window_of(one, part) == (50, 130)
    assert window_of(other, part) is None


def test_steps_of_other_sizes_count_in_samples():
    one, other = marks(1, 40, size=8), marks(1, 12, size=16)
    part = common([one, other])
    assert part == Common(16, 192, "samples")
    assert window_of(one, part) == (20, 250)


def test_no_common_part_says_why():
    # Steps of 100 samples end at 0 and at 400; those of 8 reach from 24 to 240.
    coarse = [Mark(0, 10, 0, 0), Mark(10, 20, 4, 400)]
    assert "no samples in common" in common([marks(3, 30), coarse])
    assert "no steps in common" in common([marks(1, 5), marks(6, 9)])
    assert "numbered steps" in common([marks(1, 5), []])


# ---- the command -------------------------------------------------------------------------------


def test_the_command_prints_sentences_tables_and_the_next_command(runs):
    done = cli("compare", *(runs / name for name in ("s0.3", "s0.5", "s0.7")))
    assert done.code == 0
    assert re.search(r"s0\.5: tokens_per_s_per_device \+\d", done.out)
    assert "plateau from 0.5" in done.out
    assert done.out.splitlines()[-1].startswith("next: rlinsight advise ")


def test_a_folder_stands_for_its_traces(runs):
    found = cli("compare", runs, "--json").json
    assert [run["name"] for run in found["runs"]] == ["longer", "s0.3", "s0.5", "s0.7"]


def test_reports_are_written(runs, tmp_path):
    notes, page = tmp_path / "c.md", tmp_path / "c.html"
    done = cli("compare", runs / "s0.3", runs / "s0.5", runs / "s0.7",
               "--markdown", notes, "--html", page)  # fmt: skip
    assert f"next: open {page}" in done.out
    assert "## Set differently" in notes.read_text()
    text = page.read_text()
    assert "plotly" in text
    assert "<script src=" not in text
    assert "plateau" in text


def test_what_cannot_be_compared_is_named(runs, tmp_path):
    done = cli("compare", runs / "s0.3", tmp_path / "nothing")
    assert done.code == 2
    assert "expected two runs or more to compare, found 1" in done.err
    assert "nothing: " in done.err
    both = cli("compare", runs / "s0.3", runs / "s0.5", tmp_path / "nothing")
    assert both.code == 0
    assert "left out: nothing" in both.out


def test_runs_of_one_name_are_told_apart_by_their_folders(runs, tmp_path):
    for place in ("a", "b"):
        gate_runs.write(tmp_path / place / "run", gate_runs.Kind(steps=12), 1)
    found = cli("compare", tmp_path / "a/run", tmp_path / "b/run", "--json").json
    assert [run["name"] for run in found["runs"]] == ["a/run", "b/run"]


def test_the_sample_traces_compare():
    done = cli("compare", SAMPLES / "provoked/rollout_bound", SAMPLES / "provoked/trainer_bound",
               SAMPLES / "fully_async", "--json")  # fmt: skip
    found = done.json
    assert found["common"]["unit"] == "steps"
    idle = next(row for row in found["metrics"] if row["name"] == "idle.rollouter")
    assert [c["direction"] for c in idle["cells"]][1] == "worse"
    assert "async_training.staleness_threshold" not in found["differing"]
    assert found["why_no_series"]


def test_json_holds_what_the_documentation_lists(compared):
    section = DOCS.split("## JSON")[1].split("\n## ")[0]
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", section, re.M))))
    assert {part.name for part in fields(Comparison)} <= listed
    assert {part.name for part in fields(ComparedRun)} <= listed
    json.dumps(compared.to_dict(), allow_nan=False)


def learning(path: Path, updates: int, samples: int = 1, learns: float = 0.01) -> Entrant:
    """64 steps whose accuracy grows by `learns` a sample, a sync every `updates` of them."""
    t = Timeline(path)
    for step in range(1, 65):
        t.step(step, 10 * step, 10 * step + 10, param_version=(step - 1) // updates)
        t.span("trainer", "update_actor", 10 * step, 10 * step + 10, step=step)
        for one in range(samples):
            t.trained(f"s{step}-{one}", 10 * step + 1, (1, 99), step, reward=0.5)
        t.gen(10 * step, 10 * step + 10)
        if step % 8 == 0:
            at = {"ts_ns": (10 * step + 10) * S}
            accuracy = learns * samples * step
            t.writer.metric("val-core/acc", accuracy, step=step // updates, **at)
    return entrant(path.name, t.open())


def test_runs_that_sync_at_other_steps_are_held_against_each_other_at_equal_training(tmp_path):
    often, seldom = learning(tmp_path / "often", 4), learning(tmp_path / "seldom", 8)
    for before, after in ((often, seldom), (seldom, often)):
        assert losses(before, after, compare([before, after])) == ()
    ends = {run.name: curve.x[-1] for run in (often, seldom) for curve in run.curves
            if curve.figure == "val-core/acc"}  # fmt: skip
    assert ends == {"often": 64, "seldom": 64}


def test_runs_that_train_other_numbers_of_samples_are_held_against_each_other_at_equal_training(
    tmp_path,
):
    """Half the samples a step learn half as much a step, and as much a sample."""
    large, small = learning(tmp_path / "large", 4, samples=2), learning(tmp_path / "small", 4)
    for before, after in ((large, small), (small, large)):
        assert losses(before, after, compare([before, after])) == ()
    worse = learning(tmp_path / "worse", 4, learns=0.005)
    assert losses(large, worse, compare([large, worse])) == (
        "val-core/acc after 64 trained samples is 0.32 instead of 0.64",
    )


@pytest.mark.parametrize("others", [("colocate_async",), ("sync", "fully_async")])
def test_a_knob_that_no_run_has_is_refused(others):
    places = [SAMPLES / mode for mode in ("sync", *others)]
    done = cli("compare", *places, "--knob", "train_batch_sise")
    assert done.code == 2
    assert "found `train_batch_sise`; did you mean `data.train_batch_size`?" in done.err


def rewarded(path: Path, reward: Callable[[int], float | None]) -> Entrant:
    """20 steps, a version each, with the mean reward and the mismatch that were logged."""
    t = Timeline(path)
    for step in range(1, 21):
        at, end = 10 * step, 10 * step + 10
        t.writer.marker("param_sync", lane="replica0", param_version=step - 1, ts_ns=at * S)
        t.step(step, at, end)
        t.trained(f"s{step}", at + 1, (60, 140), step)
        known = {"critic/rewards/mean": reward(step), "rollout_corr/kl": 3e-4}
        for key, value in ((k, v) for k, v in known.items() if v is not None):
            t.writer.metric(key, value, step=step, ts_ns=(end - 1) * S)
    return entrant(path.name, t.open())


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (lambda step: 0.5 if step < 15 else math.nan, "critic/rewards/mean is not a finite number"),
        (lambda _: None, "the mean reward is not logged any more"),
        (lambda _: math.nan, "critic/rewards/mean is not a finite number"),
        (lambda step: 0.1 + 0.01 * (step % 2), "the mean reward is 0.105 instead of 0.505"),
    ],
    ids=["at last", "gone", "always", "lower"],
)
def test_a_reward_that_is_lost_is_a_loss_of_quality_also_where_it_is_no_number(
    tmp_path, after, said
):
    before = rewarded(tmp_path / "before", lambda step: 0.5 + 0.01 * (step % 2))
    diverged = rewarded(tmp_path / "after", after)
    (loss,) = losses(before, diverged, compare([before, diverged]))
    assert loss.startswith(said)
    same = compare([diverged, diverged])
    assert losses(diverged, diverged, same) == ()
