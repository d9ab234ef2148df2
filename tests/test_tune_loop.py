"""The loop of `rlinsight tune` on a make-believe machine, killed, continued and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tuning_logs import DOCUMENT, FEWER, SMOKE, baseline, experiment, finding, log

from rlinsight.errors import ConfigError, PreflightError
from rlinsight.report.tune.markdown import markdown
from rlinsight.runs.tune.change import afresh, changed
from rlinsight.runs.tune.child import Ended
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Judged, Log, Measured, Record
from rlinsight.runs.tune.loop import Effects, tune
from rlinsight.runs.tune.store import load, save


class Machine:
    """Runs take no time: rollout nodes 4, 3, 2 give 100, 120 and 121 tokens/s."""

    def __init__(self, **rates: float) -> None:
        self.rates = {"4": 100.0, "3": 120.0, "2": 121.0, **rates}
        self.started: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.refused: str | None = None
        self.exit_code = self.smoke_exit_code = 0
        self.losses: tuple[str, ...] = ()
        self.kill_at: int | None = None

    def effects(self) -> Effects:
        return Effects(
            refusal=self.refusal, start=self.start, adopt=lambda one: Run(Ended(None, 0.0)),
            measured=self.measured, judged=self.judged, write=self.write, say=self.said.append,
        )  # fmt: skip

    def refusal(self, document: dict[str, Any]) -> str | None:
        return self.refused if document["resources"]["rollout"]["nodes"] == 3 else None

    def start(self, profile: Path, one: Record) -> Run:
        if self.kill_at == len(self.started):
            raise KilledError
        document = yaml.safe_load(profile.read_text())
        assert document == afresh(one.document)
        nodes = str(document["resources"]["rollout"]["nodes"])
        self.started.append((one.kind, nodes))
        Path(one.trace).mkdir(parents=True)
        (Path(one.trace) / "nodes").write_text(nodes)
        codes = {"smoke": self.smoke_exit_code, "experiment": self.exit_code}
        return Run(Ended(codes.get(one.kind, 0), one.began_s + 60))

    def rate(self, trace: str) -> float:
        return self.rates[(Path(trace) / "nodes").read_text()]

    def measured(self, trace: str, exit_code: int | None, _objective: str) -> Measured:
        if exit_code:
            return Measured(f"it ended with exit code {exit_code}")
        nodes = int((Path(trace) / "nodes").read_text())
        found = (finding("fewer", f"rollout.nnodes={nodes - 1}"),) if nodes > 2 else ()
        figures = {"trainer idle": 0.265, "mean lag": 0.297, "mini-batches ahead": 2.43}
        return Measured(None, 10, self.rate(trace), figures=figures, candidates=found,
                        answer="Nothing to gain.")  # fmt: skip

    def judged(self, kept: str, new: str, _objective: str, _aim: str) -> Judged:
        change = self.rate(new) / self.rate(kept) - 1
        real = "better" if change > 0.03 else "no"
        return Judged(change, change, change, 0.03, real, "as measured", self.losses)

    def write(self, log: Log, folder: Path) -> None:
        (folder / "tuning.md").write_text(markdown(log))


class KilledError(Exception):
    """kill -9, as far as a test can go."""


class Run:
    def __init__(self, ended: Ended) -> None:
        self.ended = ended

    def wait(self) -> Ended:
        return self.ended


def test_the_loop_goes_on_to_the_plateau(tmp_path):
    machine = Machine()
    done = tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    assert machine.started == [
        ("smoke", "4"), ("baseline", "4"), ("experiment", "3"), ("experiment", "2"),
    ]  # fmt: skip
    assert [one.decision for one in done.records] == ["passed", "kept", "kept", "reverted"]
    assert done.stopped == "plateau: every finding about the kept run was tried or left out"
    assert load(tmp_path / "tuning.json") == done
    best = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert best == {**DOCUMENT, "resources": {"rollout": {"nodes": 3}}}
    story = (tmp_path / "tuning.md").read_text()
    assert "100 tokens/s/device became 120 tokens/s/device (+20.0 %)" in story
    assert "Changes kept, in this order: rollout.nnodes=3" in story
    assert "trainer idle 26.5 %, mean lag 0.297 versions, mini-batches ahead 2.43" in story


def test_every_run_begins_without_the_training_of_the_one_before(tmp_path):
    machine = Machine()
    tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    for path in sorted((tmp_path / "configs").iterdir()):
        written = yaml.safe_load(path.read_text())
        assert written["overrides"] == {"trainer.resume_mode": "disable"}, path
    assert yaml.safe_load((tmp_path / "best.yaml").read_text())["overrides"] == {}


def test_a_refused_change_is_left_out_with_the_reason(tmp_path):
    machine = Machine()
    machine.refused = "24 rollout devices do not divide"
    done = tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    assert [kind for kind, _ in machine.started] == ["smoke", "baseline"]
    assert done.skipped[0].reason == "preflight refuses it: 24 rollout devices do not divide"
    assert "do not divide" in (tmp_path / "tuning.md").read_text()


def test_a_failed_smoke_run_ends_the_call_and_is_made_again_by_the_next(tmp_path):
    machine = Machine()
    machine.smoke_exit_code = 1
    first = tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    assert [kind for kind, _ in machine.started] == ["smoke"]
    assert first.stopped.startswith("the smoke run failed: exit code 1")
    machine.smoke_exit_code = 0
    done = tune(load(tmp_path / "tuning.json"), Limits(max_runs=1), machine.effects())
    assert [one.decision for one in done.records] == ["repeated", "passed", "kept"]


def test_a_refusal_that_was_transient_is_no_refusal_for_good(tmp_path):
    machine = Machine()
    machine.refused = "the disk is full"
    tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    machine.refused = None
    done = tune(load(tmp_path / "tuning.json"), Limits(), machine.effects())
    assert machine.started[2:] == [("experiment", "3"), ("experiment", "2")]
    assert done.skipped[0].reason == "run 3 was of this configuration already"


def test_a_configuration_that_preflight_refuses_is_an_error(tmp_path):
    machine = Machine()
    machine.refused = "no model"
    document = changed(DOCUMENT, ["rollout.nnodes=3"])
    with pytest.raises(PreflightError, match="no model"):
        tune(log(folder=str(tmp_path), document=document), Limits(), machine.effects())


def test_a_failed_experiment_is_reverted_and_said(tmp_path):
    machine = Machine()
    machine.exit_code = 1
    done = tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    assert done.records[-1].decision == "reverted"
    assert "run 2: reverted: it ended with exit code 1" in machine.said


def test_a_loss_of_quality_reverts_and_stops(tmp_path):
    machine = Machine()
    machine.losses = ("the mean reward is 0.1 instead of 0.3",)
    done = tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    assert done.stopped.startswith("quality guard, run 2: the mean reward")
    assert done.kept.kind == "baseline"


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_killed_loop_goes_on_where_it_was(tmp_path, at):
    """Killed when it starts its i-th run: that one is repeated, nothing else is."""
    whole, cut = Machine(), Machine()
    expected = tune(log(folder=str(tmp_path / "whole")), Limits(), whole.effects())
    cut.kill_at = at
    with pytest.raises(KilledError):
        tune(log(folder=str(tmp_path / "cut")), Limits(), cut.effects())
    cut.kill_at = None
    found = load(tmp_path / "cut/tuning.json")
    assert found.open is not None
    done = tune(found, Limits(), cut.effects())
    assert cut.started == whole.started
    decided = [one.decision for one in done.records if one.decision != "interrupted"]
    assert decided == [one.decision for one in expected.records]
    assert sum(one.decision == "interrupted" for one in done.records) == 1


def test_a_larger_budget_continues_a_tuning_that_stopped_for_it(tmp_path):
    machine = Machine()
    start = log(folder=str(tmp_path))
    first = tune(start, Limits(max_runs=1), machine.effects())
    assert first.stopped == "budget: 1 of 1 runs are used"
    done = tune(load(tmp_path / "tuning.json"), Limits(max_runs=3), machine.effects())
    assert len(machine.started) == 4
    assert done.kept.document["resources"]["rollout"]["nodes"] == 3


def test_the_days_until_somebody_looks_at_a_cut_off_run_are_no_hours_of_runs(tmp_path):
    """Killed in its second minute, continued on Monday: one minute counts, not the week-end."""
    machine = Machine()
    cut = experiment(2, FEWER, None, began_s=7200.0, ended_s=None, measured=None)
    found = log(SMOKE, baseline(FEWER), cut, folder=str(tmp_path))
    adopt = replace(machine.effects(), adopt=lambda _: Run(Ended(None, 7260.0)))
    done = tune(found, Limits(max_runs=1, hours=2), adopt)
    assert (done.records[2].decision, done.records[2].ended_s) == ("interrupted", 7260.0)
    never = replace(machine.effects(), adopt=lambda _: Run(Ended(None, None)))
    assert tune(found, Limits(max_runs=1), never).records[2].ended_s == 7200.0


def test_the_best_configuration_is_written_where_the_loop_was_killed_before_it(tmp_path):
    machine = Machine()
    kept = experiment(2, FEWER, "kept")
    tune(log(SMOKE, baseline(FEWER), kept, folder=str(tmp_path)), Limits(max_runs=2),
         machine.effects())  # fmt: skip
    best = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert best["resources"]["rollout"]["nodes"] == 3


def test_the_log_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "tuning.json"
    save(log(SMOKE), path)
    save(log(SMOKE, baseline(FEWER), experiment(2, FEWER, "kept")), path)
    assert [one.number for one in load(path).records] == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [path]
    path.write_text('{"schema_version": 1}')
    with pytest.raises(ConfigError, match="expected the log of a tuning"):
        load(path)
