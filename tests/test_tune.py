"""`rlinsight tune`: the decision step by hand, the loop on a make-believe machine, the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from gating import cli, gate_runs

from rlinsight.errors import ConfigError, PreflightError
from rlinsight.report.tune.markdown import markdown
from rlinsight.report.tune.plan import plan
from rlinsight.runs.tune import child
from rlinsight.runs.tune.change import changed
from rlinsight.runs.tune.child import Ended
from rlinsight.runs.tune.decide import Limits, Skip, Start, Stop, decide
from rlinsight.runs.tune.log import Candidate, Judged, Log, Measured, Record, load, save
from rlinsight.runs.tune.loop import Effects, tune, verdict_on
from rlinsight.runs.tune.measure import judged, measured
from rlinsight.trace.manifest import update_manifest

DOCS = (Path(__file__).parent.parent / "docs/tune.md").read_text()
DOCUMENT = {"mode": "fully_async", "resources": {"rollout": {"nodes": 4}}, "overrides": {}}


def finding(rule: str, *overrides: str, tier: int = 1, costs_quality: bool = False) -> Candidate:
    return Candidate(
        rule=rule, tier=tier, variables="resources", says=f"{rule} says so.",
        evidence=("idle 30 %",), overrides=overrides, predicted=(0.2, 0.1, 0.3), risk="none",
        verify="it rises", falsifier="it stays", costs_quality=costs_quality,
    )  # fmt: skip


FEWER = finding("fewer", "rollout.nnodes=3")
STALER = finding("staler", "async_training.staleness_threshold=0.5", tier=4, costs_quality=True)


def record(number: int, kind: str, decision: str | None, *candidates: Candidate, **more) -> Record:
    return Record(
        **{
            "number": number, "kind": kind, "document": DOCUMENT, "trace": f"runs/{number}",
            "began_s": 3600.0 * number, "ended_s": 3600.0 * number + 1800, "exit_code": 0,
            "decision": decision,
            "measured": Measured(None, 10, 100.0, 95.0, 105.0, candidates=candidates,
                                 answer="Nothing to gain."),
            **more,
        }
    )  # fmt: skip


def log(*records: Record, **more) -> Log:
    return Log(**{"name": "job", "config": "job.yaml", "folder": "t", "cwd": ".",
                  "objective": "per-device", "document": DOCUMENT, "records": records,
                  **more})  # fmt: skip


SMOKE = record(0, "smoke", "passed")


def baseline(*candidates: Candidate) -> Record:
    return record(1, "baseline", "kept", *candidates)


def experiment(number: int, candidate: Candidate, decision: str, **more) -> Record:
    document = changed(DOCUMENT, candidate.overrides)
    return record(number, "experiment", decision, document=document, candidate=candidate,
                  **{"beside": 1, **more})  # fmt: skip


# ---- the decision ------------------------------------------------------------------------------


def test_smoke_comes_first_then_the_baseline():
    assert decide(log(), Limits()).kind == "smoke"
    assert decide(log(), Limits(smoke=False)).kind == "baseline"
    assert decide(log(SMOKE), Limits()).kind == "baseline"


@pytest.mark.parametrize("kind", ["smoke", "baseline"])
def test_without_a_sound_start_there_is_nothing_to_tune(kind):
    failed = record(1, kind, "failed", reason="exit code 1")
    action = decide(log(failed) if kind == "smoke" else log(SMOKE, failed), Limits())
    assert action == Stop(f"the {kind} run failed: exit code 1", failed=True)


def test_the_first_finding_is_tried_in_the_kept_configuration():
    action = decide(log(SMOKE, baseline(FEWER, STALER)), Limits())
    assert (action.candidate, action.beside) == (FEWER, 1)
    assert action.document["resources"]["rollout"]["nodes"] == 3


def test_after_a_kept_experiment_its_own_findings_count():
    again = finding("fewer", "rollout.nnodes=2")
    done = experiment(2, FEWER, "kept", measured=Measured(None, 9, 120.0, candidates=(again,)))
    action = decide(log(SMOKE, baseline(FEWER), done), Limits())
    assert (action.candidate, action.beside) == (again, 2)


def test_after_a_reverted_experiment_the_next_finding_is_tried():
    other = finding("other", "trainer.test_freq=10", tier=2)
    found = log(SMOKE, baseline(FEWER, other), experiment(2, FEWER, "reverted"))
    skip = decide(found, Limits())
    assert isinstance(skip, Skip)
    assert "run 2 was of this configuration already" in skip.skipped.reason
    action = decide(replace(found, skipped=(skip.skipped,)), Limits())
    assert action.candidate == other


def test_what_may_cost_quality_is_left_out_unless_it_is_allowed():
    found = log(SMOKE, baseline(STALER))
    skip = decide(found, Limits())
    assert "--allow-quality-risk" in skip.skipped.reason
    assert decide(found, Limits(allow_quality_risk=True)).candidate == STALER


def test_a_finding_without_an_override_is_for_a_person():
    assert "for a person" in decide(log(SMOKE, baseline(finding("slow"))), Limits()).skipped.reason


def test_no_finding_is_a_plateau():
    assert decide(log(SMOKE, baseline()), Limits()) == Stop("plateau: Nothing to gain")


def test_everything_tried_is_a_plateau():
    found = log(SMOKE, baseline(FEWER), experiment(2, FEWER, "reverted"))
    skip = decide(found, Limits())
    assert "every finding" in decide(replace(found, skipped=(skip.skipped,)), Limits()).reason


def test_experiments_without_a_gain_exhaust_the_patience():
    tried = [finding(f"r{i}", f"a.b={i}") for i in range(4)]
    done = [experiment(i + 2, one, "reverted") for i, one in enumerate(tried[:2])]
    found = log(SMOKE, baseline(*tried), *done)
    assert decide(found, Limits(patience=2)) == Stop(
        "plateau: the last 2 experiments gained nothing"
    )
    assert isinstance(decide(found, Limits(patience=3)), Skip)
    kept = experiment(4, tried[2], "kept", measured=Measured(None, 9, 1.0, candidates=(FEWER,)))
    assert isinstance(decide(log(*found.records, kept), Limits(patience=1)), Start)


def test_the_budget_of_runs_counts_the_baseline_and_not_the_smoke_run():
    found = log(SMOKE, baseline(FEWER))
    assert decide(found, Limits(max_runs=1)) == Stop("budget: 1 of 1 runs are used")
    assert isinstance(decide(found, Limits(max_runs=2)), Start)
    assert isinstance(decide(log(SMOKE), Limits(max_runs=1)), Start)


def test_a_run_that_would_not_fit_into_the_hours_is_not_begun():
    found = log(SMOKE, baseline(FEWER))  # half an hour each
    assert isinstance(decide(found, Limits(hours=1.5)), Start)
    assert "1.00 of 1.4 hours are used" in decide(found, Limits(hours=1.4)).reason


def test_a_loss_of_quality_ends_it():
    lost = Judged(0.1, 0.05, 0.15, 0.05, "better", "a real gain", losses=("the reward fell",))
    found = log(SMOKE, baseline(FEWER, STALER), experiment(2, FEWER, "reverted", judged=lost))
    assert decide(found, Limits()) == Stop("quality guard, run 2: the reward fell", failed=True)


def test_an_interrupted_run_is_made_again_and_counts_for_nothing():
    cut = experiment(2, FEWER, "interrupted")
    action = decide(log(SMOKE, baseline(FEWER), cut), Limits(max_runs=2))
    assert action.candidate == FEWER


@pytest.mark.parametrize(
    ("judgement", "decision"),
    [
        (Judged(0.2, 0.1, 0.3, 0.05, "better", "a real gain"), "kept"),
        (Judged(0.2, 0.1, 0.3, 0.05, "better", "a real gain", ("reward",)), "reverted"),
        (Judged(0.02, 0.0, 0.04, 0.05, "no", "the change is below 3%"), "reverted"),
        (Judged(-0.2, -0.3, -0.1, 0.05, "worse", "a real loss"), "reverted"),
        (Judged(None, None, None, None, None, "too few windows"), "reverted"),
    ],
)
def test_only_a_real_gain_without_a_loss_of_quality_is_kept(judgement, decision):
    assert verdict_on(judgement)[0] == decision


# ---- the change --------------------------------------------------------------------------------


def test_devices_go_into_resources_and_their_sum_follows():
    document = {"resources": {"nodes": 8, "trainer": {"nodes": 4}, "rollout": {"nodes": 4}}}
    found = changed(document, ["rollout.nnodes=3", "rollout.n_gpus_per_node=6"])
    assert found["resources"] == {
        "nodes": 7, "trainer": {"nodes": 4}, "rollout": {"nodes": 3, "devices_per_node": 6},
    }  # fmt: skip
    assert document["resources"]["nodes"] == 8


def test_overrides_take_the_place_of_the_same_key():
    found = changed({"overrides": {"+a.b": 1, "c": 2}}, ["a.b=true", "d=0.5", "e=token"])
    assert found["overrides"] == {"+a.b": True, "c": 2, "d": 0.5, "e": "token"}


def test_the_mode_is_a_field_of_its_own():
    found = changed({"mode": "sync"}, ["trainer.v1.trainer_mode=colocate_async"])
    assert found["mode"] == "colocate_async"
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        changed({}, ["nonsense"])


# ---- the loop ----------------------------------------------------------------------------------


class Machine:
    """Runs take no time: rollout nodes 4, 3, 2 give 100, 120 and 121 tokens/s."""

    def __init__(self, **rates: float) -> None:
        self.rates = {"4": 100.0, "3": 120.0, "2": 121.0, **rates}
        self.started: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.refused: str | None = None
        self.exit_code = 0
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
        assert document == one.document
        nodes = str(document["resources"]["rollout"]["nodes"])
        self.started.append((one.kind, nodes))
        Path(one.trace).mkdir(parents=True)
        (Path(one.trace) / "nodes").write_text(nodes)
        return Run(Ended(self.exit_code if one.kind == "experiment" else 0, one.began_s + 60))

    def rate(self, trace: str) -> float:
        return self.rates[(Path(trace) / "nodes").read_text()]

    def measured(self, trace: str, exit_code: int | None, _objective: str) -> Measured:
        if exit_code:
            return Measured(f"it ended with exit code {exit_code}")
        nodes = int((Path(trace) / "nodes").read_text())
        found = (finding("fewer", f"rollout.nnodes={nodes - 1}"),) if nodes > 2 else ()
        return Measured(None, 10, self.rate(trace), candidates=found, answer="Nothing to gain.")

    def judged(self, kept: str, new: str, _objective: str) -> Judged:
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
    assert best["resources"]["rollout"]["nodes"] == 3
    story = (tmp_path / "tuning.md").read_text()
    assert "100 tokens/s/device became 120 tokens/s/device (+20.0 %)" in story
    assert "Changes kept, in this order: rollout.nnodes=3" in story


def test_a_refused_change_is_left_out_with_the_reason(tmp_path):
    machine = Machine()
    machine.refused = "24 rollout devices do not divide"
    done = tune(log(folder=str(tmp_path)), Limits(), machine.effects())
    assert [kind for kind, _ in machine.started] == ["smoke", "baseline"]
    assert done.skipped[0].reason == "preflight refuses it: 24 rollout devices do not divide"
    assert "do not divide" in (tmp_path / "tuning.md").read_text()


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


def test_the_log_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "tuning.json"
    save(log(SMOKE), path)
    save(log(SMOKE, baseline(FEWER), experiment(2, FEWER, "kept")), path)
    assert [one.number for one in load(path).records] == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [path]
    path.write_text('{"schema_version": 1}')
    with pytest.raises(ConfigError, match="expected the log of a tuning"):
        load(path)


# ---- what a run showed -------------------------------------------------------------------------


def recorded(path: Path, seed: int, wait: float = 1.0, steps: int = 24) -> str:
    kind = gate_runs.Kind(noise=0.01, length_spread=0.05, steps=steps, slow={"wait_samples": wait})
    gate_runs.write(path, kind, seed=seed)
    update_manifest(path, exit_code=0, ended_ns=7_000_000_000)
    return str(path)


def test_runs_are_judged_by_their_traces(tmp_path):
    kept, faster = recorded(tmp_path / "a", 1), recorded(tmp_path / "b", 2, wait=0.3)
    same = recorded(tmp_path / "c", 3)
    found = judged(kept, faster, "per-device")
    assert (found.real, found.losses) == ("better", ())
    assert found.low < found.change < found.high
    assert judged(kept, same, "wall-clock").real == "no"
    assert judged(faster, kept, "per-device").real == "worse"


def test_what_cannot_be_used_says_why(tmp_path):
    good = recorded(tmp_path / "a", 1)
    assert measured(good, 0, "per-device").problem is None
    assert "exit code 3" in measured(good, 3, "per-device").problem
    assert "cannot be read" in measured(str(tmp_path / "none"), 0, "per-device").problem
    short = recorded(tmp_path / "b", 1, steps=3)
    assert "raise `steps`" in measured(short, 0, "per-device").problem


def test_a_run_that_an_earlier_loop_started_is_read_from_its_trace(tmp_path):
    trace = recorded(tmp_path / "a", 1)
    assert child.Adopted(trace).wait() == Ended(0, 7.0)
    assert child.Adopted(str(tmp_path / "none")).wait().exit_code is None


def test_a_run_is_the_command_line_in_a_process_of_its_own(tmp_path):
    output = tmp_path / "00.log"
    run = child.start(tmp_path / "none.yaml", str(tmp_path / "t"), output, tmp_path, smoke=False)
    assert run.wait().exit_code == 2
    assert "none.yaml" in output.read_text()


class Interrupted(subprocess.Popen):
    """A process whose first wait is cut off by Ctrl-C, once it is ready."""

    waits = 0

    def wait(self, timeout: float | None = None) -> int:
        self.waits += 1
        if self.waits > 1:
            return super().wait(timeout)
        assert self.stdout.readline() == b"ready\n"
        raise KeyboardInterrupt


def test_ctrl_c_is_passed_on_to_the_run_which_ends_first(tmp_path):
    script = (
        "import pathlib, time\n"
        "try:\n    print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.5); pathlib.Path('ended').touch()\n"
    )
    process = Interrupted([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE,
                          start_new_session=True)  # fmt: skip
    with process, pytest.raises(KeyboardInterrupt):
        child.Child(process).wait()
    assert (tmp_path / "ended").exists()
    assert process.returncode == 0


# ---- the command -------------------------------------------------------------------------------


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
