"""What becomes of the findings of all rules, `rlinsight advise`, and the catalogue in the docs."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from cases import SPARE, balance, case, report, sample, tails, versions
from simulated import job
from typer.testing import CliRunner

from rlinsight.analyzers.advise import RULES, advise
from rlinsight.analyzers.advise.case import NOT_CALIBRATED
from rlinsight.analyzers.advise.finding import TIERS, Advice, Evidence, Finding
from rlinsight.analyzers.engines.slots import SlotUse
from rlinsight.analyzers.health.alarms import Alarm
from rlinsight.analyzers.health.liveness import Liveness
from rlinsight.analyzers.result import Estimate
from rlinsight.cli import app
from rlinsight.errors import ConfigError

ROOT = Path(__file__).parent.parent
DOCS = (ROOT / "docs/advisor.md").read_text()


# -- all of them ---------------------------------------------------------------------------


def test_a_run_that_stands_still_gets_no_advice():
    alarm = Alarm("no_progress", "trainer", 0, 900.0, 300.0, "nothing has ended for 15 min", {})
    still = case(job(**SPARE), idle={"rollouter": 0.9}, liveness=Liveness((alarm,), ()))
    found = advise(still)
    assert found.suppressed == "nothing has ended for 15 min"
    assert (found.findings, found.first) == ((), None)


def quiet(mode: str = "fully_async", **settings):
    """Nothing idles, waits or fails."""
    plain = balance(kv_pressure=(), versions=(), replicas=(), ranks=None, requests=None)
    trust = replace(sample("fully_async").trust, hook_share_largest=0.0)
    return case(job(**SPARE), mode, slots=SlotUse({}, ()), balance=plain, trust=trust, sync=None,
                lengths=tails(0.0), **settings)  # fmt: skip


def test_nothing_to_gain_is_an_answer():
    found = advise(quiet())
    assert found.answer.startswith("Nothing to gain")
    assert set(found.cleared) == {rule.name for rule in RULES}


def test_only_an_answer_is_given_as_the_reason():
    """Tails that cost little are none; tails that nothing helps against are."""
    assert "tails" not in advise(quiet()).answer
    hopeless = advise(replace(quiet(), report=replace(quiet().report, lengths=tails(0.5))))
    assert hopeless.first is None
    assert "fix the tail first" in hopeless.answer


@pytest.mark.parametrize("mode", ["sync", "separate_async", "fully_async"])
def test_without_a_calibration_no_rule_says_what_is_not_so(mode):
    told = advise(replace(quiet(mode), calibration=None)).cleared
    of_other_modes = {
        "go_asynchronous": ("sync", "is asynchronous already"),
        "hybrid_switch": ("separate_async", "only separate_async"),
        "raise_staleness": ("fully_async", "only fully_async"),
        "concurrent_samples": ("fully_async", "only fully_async"),
        "warm_up_batches": ("separate_async", "this mode has no"),
    }
    for rule, (of_mode, reason) in of_other_modes.items():
        assert (reason in told[rule]) == (mode != of_mode)
        assert (told[rule] == NOT_CALIBRATED) == (mode == of_mode)


def test_a_run_that_failed_is_to_be_mended_before_it_is_tuned():
    ended = replace(sample("fully_async").run, exit_code=137)
    assert advise(quiet(run=ended)).answer.startswith(
        "The run failed (exit code 137): find out why"
    )


def test_the_cheapest_finding_comes_first():
    found = advise(quiet(idle={"rollouter": 0.6}, states={("trainer", "weight_sync"): 0.2}))
    assert found.first is not None
    assert found.first.rule == "fewer_rollouters"
    assert found.answer == f"First: {found.first.says}"
    assert [one.tier for one in found.findings] == sorted(one.tier for one in found.findings)


@pytest.mark.parametrize(
    ("gain", "kept"),
    [
        (Estimate(0.0301, 0.001, 0.06), True),
        (Estimate(0.0299, 0.001, 0.06), False),
        (Estimate(0.05, 0.0, 0.1), False),
        (Estimate(0.001, -0.02, 0.02), False),
        (Estimate(0.05), False),
        (Estimate(None), False),
    ],
)
@pytest.mark.parametrize("wall_clock", [False, True])
def test_no_rule_offers_a_change_that_is_predicted_to_gain_nothing(gain, kept, wall_clock):
    told = quiet()
    told.wall_clock = wall_clock
    effect = told.effect({"staleness_threshold": 0.5})
    other = Estimate(0.5, 0.4, 0.6) if not kept else Estimate(-0.5, -0.6, -0.4)
    rates = (other, gain) if wall_clock else (gain, other)
    effect = replace(effect, tokens_per_s_per_device=rates[0], tokens_per_s=rates[1])
    eager = [
        replace(rule, check=lambda case: case.propose("change it", (), effect))
        for rule in RULES
        if rule.aim == "throughput"
    ]
    found = advise(told, eager[:1])
    assert bool(found.findings) == kept
    found = advise(told, eager)
    assert bool(found.findings) == kept
    if not kept:
        assert set(found.cleared) == {rule.name for rule in eager}
        assert all("what it would change" in why for why in found.cleared.values())


def test_two_findings_of_one_change_are_one():
    work = job(lengths=(1, 2, 30), train_s=2.0, staleness_threshold=0.5, mini_batch=4,
               costs={"sync_s": 4.0})  # fmt: skip
    told = case(work, states={("trainer", "weight_sync"): 0.3}, lengths=tails(0.3))
    rules = [rule for rule in RULES if rule.name in ("sync_cost", "long_tail")]
    found = advise(told, rules)
    assert [one.rule for one in found.findings] == ["sync_cost"]
    assert found.cleared["long_tail"] == "asks for the same change as sync_cost"


def test_without_a_calibration_only_defects_are_told():
    found = advise(case(None, idle={"rollouter": 0.6}, balance=balance(versions=(versions(True),))))
    assert {one.rule for one in found.findings} <= {"stale_shard", "kv_pressure", "slow_replica"}
    assert found.first.rule == "stale_shard"


# -- command and documentation -------------------------------------------------------------


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["advise", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command_advises_on_a_recorded_run(tmp_path):
    notes = tmp_path / "a.md"
    text = run(str(ROOT / "sample_traces" / "sync"), "--why-not", "--markdown", str(notes))
    assert "objective: per-device throughput" in text
    assert "1. go_asynchronous" in text
    assert "wrong if" in text
    assert "Rules that propose nothing" in text
    assert text.splitlines()[-1].startswith("next: rlinsight ")
    assert "`trainer.v1.trainer_mode=colocate_async" in notes.read_text()


def test_json_holds_what_the_documentation_lists():
    found = json.loads(run(str(ROOT / "sample_traces" / "sync"), "--json", "--seeds", "2"))
    section = DOCS.split("## JSON")[1].split("\n## ")[0]
    assert set(found) == set(Advice.__dataclass_fields__)
    for name in (*Advice.__dataclass_fields__, *Finding.__dataclass_fields__,
                 *Evidence.__dataclass_fields__):  # fmt: skip
        assert f"`{name}`" in section, name


def test_a_rule_explains_itself():
    text = run("--explain", "fewer_rollouters")
    assert "rollouters idle at least 15%" in text
    with pytest.raises(ConfigError, match="expected a rule"):
        run("--explain", "bogus")
    with pytest.raises(ConfigError, match="expected a trace"):
        run()


def test_the_catalogue_is_that_of_the_code():
    written = runpy.run_path(str(ROOT / "scripts/advisor_docs.py"))["written"]
    assert written(DOCS) == DOCS, "run `make docs`"
    for tier, text in TIERS.items():
        assert f"| {tier} | {text} |" in DOCS


def test_rules_have_names_of_their_own_and_all_that_a_finding_needs():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    for rule in RULES:
        assert re.fullmatch(r"[a-z_]+", rule.name)
        assert rule.check.__doc__
        assert rule.tier in TIERS
    assert report().run.mode == "fully_async"
