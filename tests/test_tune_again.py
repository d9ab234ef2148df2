"""What the same command, typed again, makes of a tuning that had ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tuning_logs import FEWER, SMOKE, STALER, baseline, experiment, finding, log, record

from rlinsight.runs.tune.again import taken_up
from rlinsight.runs.tune.decide import Skip, Start, Stop, decide
from rlinsight.runs.tune.findings import refused
from rlinsight.runs.tune.limits import Limits
from rlinsight.runs.tune.log import Judged, Log, Skipped

STALE = finding("stale_shard", mend_first=True)


def next_action(found: Log, limits: Limits) -> Start | Skip | Stop:
    return decide(taken_up(found, limits), limits)


@pytest.mark.parametrize("kind", ["smoke", "baseline"])
def test_a_failed_start_ends_its_call_and_the_next_call_makes_it_again(kind):
    """The port was in use: once it is free, the same command goes on."""
    failed = record(1, kind, "failed", reason="exit code 1")
    found = log(failed) if kind == "smoke" else log(SMOKE, failed)
    assert decide(found, Limits()).failed
    ended = replace(found, stopped="the run failed")
    assert next_action(ended, Limits(max_runs=1)).kind == kind
    assert taken_up(ended, Limits()).records[-1].decision == "repeated"


def test_a_call_that_was_killed_had_not_said_that_the_start_failed():
    found = log(record(1, "smoke", "failed", reason="exit code 1"))
    assert next_action(found, Limits()).failed


def test_a_run_that_showed_a_defect_is_made_again_to_see_whether_it_is_mended():
    ended = log(SMOKE, baseline(STALE, FEWER), stopped="stale_shard")
    assert next_action(ended, Limits()).kind == "baseline"
    despite = Limits(despite=("stale_shard",))
    assert [one.decision for one in taken_up(ended, despite).records] == ["passed", "kept"]


def test_an_experiment_that_showed_a_defect_is_made_again():
    shown = replace(baseline(STALE).measured, value=120.0)
    kept = experiment(2, FEWER, "kept", measured=shown)
    again = next_action(log(SMOKE, baseline(FEWER), kept, stopped="stale_shard"), Limits())
    assert (again.candidate, again.beside) == (FEWER, 1)


def test_where_all_kept_runs_showed_the_defect_the_last_configuration_is_measured_anew():
    """The first call went on despite it; the second knows that it is mended."""
    shown = replace(baseline(STALE).measured, value=120.0)
    kept = experiment(2, FEWER, "kept", measured=shown)
    ended = log(SMOKE, baseline(STALE, FEWER), kept, stopped="stale_shard")
    again = next_action(ended, Limits())
    assert (again.kind, again.document, again.beside) == ("baseline", kept.document, None)
    assert taken_up(ended, Limits()).kept is None


def test_what_was_tried_beside_a_run_that_is_made_again_decides_nothing_any_more():
    """A reverted change is tried again, and a loss of quality is none."""
    lost = Judged(0.1, 0.0, 0.2, 0.1, "better", "", ("the reward fell",))
    tried = experiment(2, FEWER, "reverted", judged=lost)
    ended = log(SMOKE, baseline(STALE, FEWER), tried, stopped="stale_shard")
    again = taken_up(ended, Limits())
    assert decide(again, Limits()).kind == "baseline"
    sound = replace(again, records=(*again.records, replace(baseline(FEWER), number=3)))
    action = decide(sound, Limits())
    assert (action.candidate, action.beside) == (FEWER, 3)


def test_a_defect_that_a_setting_mends_is_not_measured_again():
    routing = finding("policy_mismatch", "a.router=R3", mend_first=True)
    ended = log(SMOKE, baseline(routing), stopped="policy_mismatch")
    assert taken_up(ended, Limits()).records == ended.records
    assert "a configuration of its own" in next_action(ended, Limits()).reason


def test_what_preflight_refused_is_asked_about_again():
    """The disk was full; what was left out for another reason stays in the story."""
    person = Skipped(1, "slow", "", "it names no setting to change")
    found = log(SMOKE, baseline(FEWER), skipped=(person, refused(FEWER, 1, "the disk is full")))
    assert "every finding" in decide(found, Limits()).reason
    assert next_action(found, Limits()).candidate == FEWER
    assert taken_up(found, Limits()).skipped == (person,)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Limits(patience=2), Limits(patience=2, allow_quality_risk=True)),
        (Limits(patience=2, hold=("async_training",), allow_quality_risk=True),
         Limits(patience=2, allow_quality_risk=True)),
        (Limits(patience=2, allow_quality_risk=True), Limits(patience=3, allow_quality_risk=True)),
    ],
    ids=["risk", "hold", "patience"],
)  # fmt: skip
def test_wider_limits_go_on_after_a_plateau_by_patience(before, now):
    """Two experiments gained nothing, with patience for two; the third finding was never tried."""
    tried = [finding(f"r{i}", f"a.b={i}") for i in range(2)]
    done = [experiment(i + 2, one, "reverted") for i, one in enumerate(tried)]
    ended = log(SMOKE, baseline(*tried, STALER), *done, stopped="plateau", limits=before)
    assert "gained nothing" in next_action(ended, before).reason
    state = taken_up(ended, now)
    while isinstance(action := decide(state, now), Skip):
        state = replace(state, skipped=(*state.skipped, action.skipped))
    assert action.candidate == STALER


def test_the_patience_of_a_tuning_outlives_a_killed_call():
    tried = [finding(f"r{i}", f"a.b={i}") for i in range(2)]
    done = [experiment(i + 2, one, "reverted") for i, one in enumerate(tried)]
    cut = log(SMOKE, baseline(*tried, FEWER), *done, limits=Limits(patience=2))
    assert "gained nothing" in next_action(cut, Limits(patience=2)).reason
    assert "gained nothing" in next_action(cut, Limits(patience=2, hold=("mode",))).reason
