"""The decision step of `rlinsight tune`, and the change that it makes to a configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tuning_logs import DOCUMENT, FEWER, SMOKE, STALER, baseline, experiment, finding, log, record

from rlinsight.errors import ConfigError
from rlinsight.runs.tune.change import afresh, changed
from rlinsight.runs.tune.decide import Skip, Start, Stop, decide
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Judged, Measured
from rlinsight.runs.tune.loop import verdict_on

OTHER = finding("other", "trainer.test_freq=10", tier=2)

# -- the decision --------------------------------------------------------------------------


def test_smoke_comes_first_then_the_baseline():
    assert decide(log(), Limits()).kind == "smoke"
    assert decide(log(), Limits(smoke=False)).kind == "baseline"
    assert decide(log(SMOKE), Limits()).kind == "baseline"


@pytest.mark.parametrize("kind", ["smoke", "baseline"])
def test_without_a_sound_start_there_is_nothing_to_tune(kind):
    failed = record(1, kind, "failed", reason="exit code 1")
    action = decide(log(failed) if kind == "smoke" else log(SMOKE, failed), Limits())
    assert action.failed
    assert action.reason == (
        f"the {kind} run failed: exit code 1; once that is mended, the same command makes it again"
    )


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


def test_what_was_left_out_for_its_risk_is_tried_once_that_is_allowed():
    found = log(SMOKE, baseline(STALER))
    skipped = decide(found, Limits()).skipped
    continued = replace(found, skipped=(skipped,))
    assert "every finding" in decide(continued, Limits()).reason
    assert decide(continued, Limits(allow_quality_risk=True)).candidate == STALER
    refused = replace(skipped, reason="preflight refuses it: 3 do not divide")
    again = replace(found, skipped=(skipped, refused))
    assert "every finding" in decide(again, Limits(allow_quality_risk=True)).reason


@pytest.mark.parametrize(
    "held",
    ["async_training.staleness_threshold", "async_training", "+async_training.staleness_threshold"],
)
def test_what_is_held_is_left_out_by_its_key_or_its_section(held):
    found, limits = log(SMOKE, baseline(STALER)), Limits(allow_quality_risk=True, hold=(held,))
    skip = decide(found, limits)
    assert skip.skipped.reason == f"it changes {held}, which --hold leaves as it is"


@pytest.mark.parametrize(
    "held",
    [
        "resources",
        "resources.nodes",
        "resources.rollout",
        "resources.rollout.nodes",
        "rollout.nnodes",
    ],
)
def test_devices_are_held_by_either_name(held):
    assert "--hold" in decide(log(SMOKE, baseline(FEWER)), Limits(hold=(held,))).skipped.reason


@pytest.mark.parametrize(
    "held", ["resources.trainer", "resources.trainer.nodes", "rollout.nnode", "async", "mode"]
)
def test_what_is_held_beside_it_is_no_reason(held):
    assert decide(log(SMOKE, baseline(FEWER)), Limits(hold=(held,))).candidate == FEWER


def test_what_is_no_longer_held_is_tried():
    found = log(SMOKE, baseline(FEWER))
    continued = replace(found, skipped=(decide(found, Limits(hold=("resources",))).skipped,))
    assert "every finding" in decide(continued, Limits(hold=("resources",))).reason
    assert decide(continued, Limits()).candidate == FEWER
    assert isinstance(decide(continued, Limits(hold=("rollout",))), Skip)


def test_a_finding_without_an_override_is_for_a_person():
    assert "for a person" in decide(log(SMOKE, baseline(finding("slow"))), Limits()).skipped.reason


def test_the_same_number_written_otherwise_is_the_same_configuration():
    whole = {**DOCUMENT, "overrides": {"a.b": 1}}
    kept = record(1, "baseline", "kept", finding("again", "a.b=1.0"), document=whole)
    assert "run 1 was of this configuration" in decide(log(SMOKE, kept), Limits()).skipped.reason


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
    stop = decide(found, Limits())
    assert stop.failed
    assert stop.reason.startswith("quality guard, run 2: the reward fell;")


def test_who_holds_what_cost_quality_goes_on_without_it():
    lost = Judged(0.1, 0.05, 0.15, 0.05, "better", "a real gain", losses=("the reward fell",))
    found = log(SMOKE, baseline(FEWER, OTHER), experiment(2, FEWER, "reverted", judged=lost))
    assert "`--hold rollout.nnodes` goes on" in decide(found, Limits()).reason
    skip = decide(found, Limits(hold=("rollout.nnodes",)))
    assert "--hold" in skip.skipped.reason
    held = replace(found, skipped=(skip.skipped,))
    assert decide(held, Limits(hold=("rollout.nnodes",))).candidate == OTHER


def test_a_change_of_the_reward_is_left_out_whatever_is_allowed():
    """The rewards of the two runs would not be comparable, and the guard would end the tuning."""
    penalty = finding("overlong", "reward.reward_manager.name=dapo", changes_reward=True)
    skip = decide(log(SMOKE, baseline(penalty)), Limits(allow_quality_risk=True))
    assert "it changes what is rewarded" in skip.skipped.reason


def test_a_defect_ends_it_before_anything_is_tuned():
    stale = finding("stale_shard", mend_first=True)
    stop = decide(log(SMOKE, baseline(stale, FEWER)), Limits())
    assert stop.failed
    assert stop.reason == (
        "stale_shard, run 1: stale_shard says so; once that is mended, the same command measures "
        "again; `--despite stale_shard` goes on as it is"
    )
    replay = finding("policy_mismatch", "a.router_replay.mode=R3", mend_first=True)
    stop = decide(log(SMOKE, baseline(FEWER, replay)), Limits())
    assert "put a.router_replay.mode=R3 into a configuration of its own" in stop.reason


def test_a_defect_that_is_none_does_not_end_it():
    stale = finding("stale_shard", mend_first=True)
    found, limits = log(SMOKE, baseline(stale, FEWER)), Limits(despite=("stale_shard",))
    skip = decide(found, limits)
    assert "for a person" in skip.skipped.reason
    assert decide(replace(found, skipped=(skip.skipped,)), limits).candidate == FEWER


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


# -- the change ----------------------------------------------------------------------------


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


def test_a_trainer_that_is_left_out_counts_as_the_node_that_it_is():
    document = {"resources": {"nodes": 3, "rollout": {"nodes": 2}}}
    resources = changed(document, ["rollout.nnodes=1"])["resources"]
    assert resources == {"nodes": 2, "rollout": {"nodes": 1}}


def test_the_mode_is_a_field_of_its_own():
    found = changed({"mode": "sync"}, ["trainer.v1.trainer_mode=colocate_async"])
    assert found["mode"] == "colocate_async"
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        changed({}, ["nonsense"])


def test_what_overrides_say_of_devices_or_mode_does_not_win_over_a_change():
    document = {
        "mode": "sync", "resources": {"trainer": {"nodes": 4}, "rollout": {"nodes": 4}},
        "overrides": {"+trainer.nnodes": 4, "actor_rollout_ref.rollout.nnodes": 4,
                      "trainer.v1.trainer_mode": "sync", "a.b": 1},
    }  # fmt: skip
    found = changed(document, ["trainer.nnodes=3", "rollout.nnodes=5",
                               "++trainer.v1.trainer_mode=separate_async"])  # fmt: skip
    assert found == {
        "mode": "separate_async", "overrides": {"a.b": 1},
        "resources": {"trainer": {"nodes": 3}, "rollout": {"nodes": 5}},
    }  # fmt: skip
    assert len(document["overrides"]) == 4
    assert changed({"mode": "sync"}, ["trainer.v1.trainer_mode=sync"]) == {"mode": "sync"}


def test_a_run_begins_afresh_unless_the_configuration_names_where():
    assert afresh({"mode": "sync"})["overrides"] == {"trainer.resume_mode": "disable"}
    auto = {"overrides": {"+trainer.resume_mode": "auto", "a.b": 1}}
    assert afresh(auto)["overrides"] == {"+trainer.resume_mode": "disable", "a.b": 1}
    assert auto["overrides"]["+trainer.resume_mode"] == "auto"
    named = {"overrides": {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/c"}}
    assert afresh(named) == named
