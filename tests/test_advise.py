"""The advisor's rules, on both sides of their thresholds, and what becomes of their findings."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from cases import case, report, sample
from simulated import job
from typer.testing import CliRunner

from rlinsight.analyzers.advise import RULES, advise
from rlinsight.analyzers.advise.finding import TIERS, Advice, Evidence, Finding
from rlinsight.analyzers.advise.rules import (
    asynchronous,
    batching,
    engine,
    memory,
    resources,
    routing,
    staleness,
    sync,
    tail,
    validation,
)
from rlinsight.analyzers.devices.memory import RankMemory, RankSpread
from rlinsight.analyzers.devices.report import DeviceReport
from rlinsight.analyzers.engines.balance import Balance
from rlinsight.analyzers.engines.pressure import KvPressure
from rlinsight.analyzers.engines.ranks import RankBalance
from rlinsight.analyzers.engines.replica_speed import ReplicaSpeed
from rlinsight.analyzers.engines.slots import LaneSlots, SlotUse
from rlinsight.analyzers.engines.spread import ReplicaVersions, RequestSpread
from rlinsight.analyzers.health.alarms import Alarm
from rlinsight.analyzers.health.liveness import Liveness
from rlinsight.analyzers.quality.guard import EffectiveSampleSize, Kl
from rlinsight.analyzers.simulate import Knobs
from rlinsight.analyzers.simulate.overrides import pool_override
from rlinsight.cli import app
from rlinsight.errors import ConfigError

ROOT = Path(__file__).parent.parent
DOCS = (ROOT / "docs/advisor.md").read_text()

#: Four replicas of which one would do: an update takes as long as the responses of one.
SPARE = {"rollout_devices": 4, "lengths": (4,), "train_s": 30.0, "staleness_threshold": 1.0}
#: One slot a replica: generation is what takes long.
SHORT = {"rollout_devices": 2, "lengths": (8, 12), "train_s": 1.0, "max_num_seqs": 1,
         "mini_batch": 8, "staleness_threshold": 0.5}  # fmt: skip


def balance(**parts) -> Balance:
    return replace(sample("fully_async").balance, **parts)


# ---- tier 1 --------------------------------------------------------------------------------


def test_idle_rollouters_of_a_busy_trainer_are_too_many():
    found = resources.fewer_rollouters(
        case(job(**SPARE), idle={"rollouter": 0.6}, bubbles={("rollouter", "staleness_quota"): 0.6},
             config={"rollout": {"nnodes": 4, "n_gpus_per_node": 1}})
    )  # fmt: skip
    assert found.changes == {"rollout_replicas": 1}
    assert found.overrides == ("rollout.nnodes=1",)
    assert found.effect.tokens_per_s_per_device.low > 1.0  # five devices become two
    assert found.evidence[0].windows  # when they idle


@pytest.mark.parametrize(
    ("idle", "waits", "reason"),
    [
        (0.14, 0.0, "the rollouters idle 14.0%"),
        (0.60, 0.2, "the trainer waits 20.0%"),
    ],
)
def test_rollouters_that_work_or_are_waited_for_are_kept(idle, waits, reason):
    told = resources.fewer_rollouters(
        case(job(**SPARE), idle={"rollouter": idle}, bubbles={("trainer", "wait_samples"): waits})
    )
    assert reason in told


def test_by_the_wall_clock_no_device_is_given_up():
    told = resources.fewer_rollouters(case(job(**SPARE), idle={"rollouter": 0.6}, wall_clock=True))
    # An update takes as long on more devices, so that they are of no use to the trainer either.
    assert told == "no smaller number of replicas is predicted to raise the wall-clock throughput"


def test_a_trainer_that_waits_for_busy_rollouters_wants_more_of_them():
    found = resources.more_rollouters(
        case(job(**SHORT), bubbles={("trainer", "wait_samples"): 0.7}, wall_clock=True)
    )
    assert found.effect.tokens_per_s.value > 0.3
    assert found.effect.after.knobs.rollout_devices > 2


@pytest.mark.parametrize(("idle", "waits"), [(0.0, 0.14), (0.2, 0.7)])
def test_a_trainer_that_works_or_rollouters_with_time_need_no_more(idle, waits):
    told = resources.more_rollouters(
        case(job(**SHORT), idle={"rollouter": idle}, bubbles={("trainer", "wait_samples"): waits})
    )
    assert told.startswith("the trainer waits")


def test_taking_turns_is_given_up_where_generating_ahead_hides_the_wait():
    work = job("sync", lengths=(3, 20), train_s=18.0, train_batch=4, mini_batch=4)
    found = asynchronous.go_asynchronous(
        case(work, "sync", bubbles={("trainer", "long_tail"): 0.4})
    )
    assert found.overrides[0] == "trainer.v1.trainer_mode=colocate_async"
    assert found.effect.tokens_per_s.low > 0
    assert found.effect.after.mean_lag_versions.value > 0.4


@pytest.mark.parametrize(
    ("waits", "lengths", "reason"),
    [
        (0.09, (3, 20), "stay synchronous: only 9.0%"),
        (0.40, (30,), "stay synchronous: generating one batch ahead"),
    ],
)
def test_staying_synchronous_is_an_answer(waits, lengths, reason):
    # With one slot, a batch ahead waits for the slot as the batch itself would.
    work = job("sync", lengths=lengths, train_s=1.0, train_batch=4, mini_batch=4, max_num_seqs=1)
    told = asynchronous.go_asynchronous(
        case(work, "sync", bubbles={("trainer", "wait_samples"): waits})
    )
    assert reason in told


def versions(lagging: bool) -> ReplicaVersions:
    return ReplicaVersions("replica1", 7, 3, 12.0, 5.0, 12.0, (5, 6), lagging)


def test_a_replica_that_lags_behind_is_told_first():
    found = sync.stale_shard(case(None, balance=balance(versions=(versions(True),))))
    assert "`replica1` is 3 versions behind" in found.says
    assert found.effect is None
    told = sync.stale_shard(case(None, balance=balance(versions=(versions(False),))))
    assert told == "all replicas took every version"


# ---- tier 2 --------------------------------------------------------------------------------

VALIDATES = {"validation_interval": 1, "validation": (6,), "max_num_seqs": 4, "group_size": 1,
             "costs": {"validation_requests": 24}}  # fmt: skip


def test_a_trainer_that_waits_for_validations_can_help():
    found = validation.trainer_validates(
        case(job(**VALIDATES), states={("trainer", "validate"): 0.06})
    )
    assert found.overrides == ("async_training.use_trainer_do_validate=true",)


@pytest.mark.parametrize("share", [0.04])
def test_short_validations_are_left_alone(share):
    told = validation.trainer_validates(
        case(job(**VALIDATES), states={("trainer", "validate"): share})
    )
    assert told == "validation takes 4.0% of the trainer's time"


def test_validations_that_take_long_can_be_fewer():
    found = validation.validation_interval(
        case(job(**VALIDATES), states={("trainer", "validate"): 0.11})
    )
    assert found.overrides == ("trainer.test_freq=2",)
    told = validation.validation_interval(
        case(job(**VALIDATES), states={("trainer", "validate"): 0.09})
    )
    assert "9.0%" in told


LENDS = {"lengths": (12,), "train_s": 1.0, "train_batch": 4, "max_num_seqs": 1}


@pytest.mark.parametrize(("waits", "fires"), [(0.11, True), (0.09, False)])
def test_waiting_trainer_devices_can_generate(waits, fires):
    found = validation.hybrid_switch(
        case(job("separate_async", **LENDS), "separate_async",
             bubbles={("trainer", "wait_samples"): waits})
    )  # fmt: skip
    assert fires == (not isinstance(found, str))
    if fires:
        assert found.overrides == ("trainer.v1.separate_async.hybrid_rollout.enable_switch=true",)


@pytest.mark.parametrize(("share", "fires"), [(0.09, True), (0.07, False)])
def test_syncs_that_take_long_can_be_fewer(share, fires):
    work = job(lengths=(2,), train_s=2.0, costs={"sync_s": 4.0}, staleness_threshold=1.0)
    found = sync.sync_cost(case(work, states={("trainer", "weight_sync"): share}))
    assert fires == (not isinstance(found, str))
    if fires:
        assert found.changes == {"sync_step": 2}


def test_validations_keep_their_pace_when_syncs_are_halved():
    asked = case(job(sync_step=2, validation_interval=6)).less_often()
    assert asked == {"sync_step": 4, "validation_interval": 3}


@pytest.mark.parametrize(("share", "fires"), [(0.021, True), (0.019, False), (None, False)])
def test_recording_must_not_be_what_is_tuned_for(share, fires):
    trust = replace(sample("fully_async").trust, hook_share=share)
    assert fires == (not isinstance(sync.recording_overhead(case(None, trust=trust)), str))


def test_syncs_that_grow_are_told():
    report_of_syncs = sample("fully_async").sync
    kind = report_of_syncs.by_backend[report_of_syncs.main]
    trend = replace(kind.trend, growing=True, growth=2.5)
    grown = replace(report_of_syncs, by_backend={"nccl": replace(kind, trend=trend)})
    found = sync.sync_growth(case(None, sync=grown))
    assert "2.5 times" in found.says
    assert isinstance(sync.sync_growth(case(None)), str)


# ---- tier 3 --------------------------------------------------------------------------------


def slots(queued: float | None) -> SlotUse:
    base = sample("fully_async").slots.lanes[0]
    lane: LaneSlots = replace(base, lane="replica1", over_capacity_ratio=queued)
    return SlotUse({}, (lane,))


@pytest.mark.parametrize(("queued", "fires"), [(0.31, True), (0.29, False), (None, False)])
def test_engines_with_a_queue_and_memory_run_more_at_once(queued, fires):
    plain = balance(kv_pressure=())
    found = engine.concurrency(case(job(**SHORT), slots=slots(queued), balance=plain))
    assert fires == (not isinstance(found, str))
    if fires:
        assert found.changes == {"max_num_seqs": 2}


PRESSED = KvPressure("replica1", "preempting", 0.95, 0.99, None, None, 0.5, 12)


def test_engines_under_pressure_get_no_more_and_are_told_so():
    pressed = balance(kv_pressure=(PRESSED,))
    told = engine.concurrency(case(job(**SHORT), slots=slots(0.9), balance=pressed))
    assert "under pressure" in told
    found = engine.kv_pressure(case(job(max_num_seqs=8), balance=pressed))
    assert found.overrides == ("actor_rollout_ref.rollout.max_num_seqs=6",)
    assert found.effect is None  # preemption is not simulated: nothing is claimed
    assert isinstance(engine.kv_pressure(case(None, balance=balance(kv_pressure=()))), str)


@pytest.mark.parametrize("slow", [True, False])
def test_a_slow_replica_is_named(slow):
    speed = ReplicaSpeed("replica1", 10, 1000, 30.0, 4.0, 1.6, slow)
    found = engine.slow_replica(case(None, balance=balance(replicas=(speed,))))
    assert slow == (not isinstance(found, str))


RANKS = RankBalance("update_actor", 10, 0.3, 0.5, 0.0, 0.12, ())


@pytest.mark.parametrize(
    ("lost", "config", "override"),
    [
        (0.12, {}, "trainer.balance_batch=True"),
        (0.12, {"trainer": {"balance_batch": True}},
         "actor_rollout_ref.actor.use_dynamic_bsz=True"),
        (0.08, {}, None),
        (0.12, {"trainer": {"balance_batch": True},
                "actor_rollout_ref": {"actor": {"use_dynamic_bsz": True}}}, None),
    ],
)  # fmt: skip
def test_unequal_ranks_are_balanced_then_made_dynamic(lost, config, override):
    ranks = balance(ranks=replace(RANKS, lost_share=lost))
    found = batching.dp_imbalance(case(None, config=config, balance=ranks))
    assert (None if isinstance(found, str) else found.overrides[0]) == override


@pytest.mark.parametrize(("waits", "fires"), [(0.11, True), (0.09, False)])
def test_one_more_batch_ahead_hides_a_tail(waits, fires):
    work = job("separate_async", lengths=(1, 2, 30), train_s=9.0, train_batch=4, mini_batch=4,
               hybrid_engine=False, warm_up_batches=0)  # fmt: skip
    found = batching.warm_up_batches(
        case(work, "separate_async", bubbles={("trainer", "long_tail"): waits})
    )
    assert fires == (not isinstance(found, str))
    if fires:
        assert found.changes == {"warm_up_batches": 1}


def tails(share: float):
    lengths = sample("fully_async").lengths
    return replace(lengths, tail=replace(lengths.tail, share_of_busy=share))


@pytest.mark.parametrize(("share", "fires"), [(0.16, True), (0.14, False)])
def test_tails_are_answered_with_fewer_syncs(share, fires):
    work = job(lengths=(1, 2, 30), train_s=2.0, staleness_threshold=0.5, mini_batch=4)
    found = tail.long_tail(case(work, lengths=tails(share)))
    assert fires == (not isinstance(found, str))


def test_a_tail_that_no_setting_cures_is_to_be_fixed_first():
    told = tail.long_tail(case(job("sync"), "sync", lengths=tails(0.3)))
    assert "fix the tail first" in told


BUDGET = {"trainer_devices": 1, "token_budget": 1024, "max_response_length": 1000}
LONG = {"data": {"max_prompt_length": 24, "max_response_length": 1000}}


def memory_of(factor: float | None):
    more = None if factor is None else 9.0
    ranks = RankSpread((RankMemory("r0", 1, 1, factor), RankMemory("r1", 1, 1, more)), 0)
    return DeviceReport(None, (), (), (), ranks, (), (), ())


def with_micro_batches():
    """Most of an update is a constant per micro-batch of 1024 tokens."""
    work = job("sync", lengths=(512,), train_batch=16, mini_batch=16, token_s=0.001, **BUDGET)
    training = replace(work.training, fixed_s=0.1, per_micro_batch_s=2.0, tokens=(8192.0, 8192.0))
    return replace(work, training=training)


def test_memory_to_spare_is_a_larger_token_budget():
    found = memory.token_budget(
        case(with_micro_batches(), "sync", config=LONG, devices=memory_of(2.0))
    )
    assert found.overrides == ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048",)
    assert "feasible from 1024 to 2048" in found.says
    assert found.effect.after.outside  # what a micro-batch costs by itself is not known for sure


@pytest.mark.parametrize(
    ("factor", "reason"),
    [(1.2, "uses the memory well"), (None, "was not sampled")],
)
def test_a_budget_that_fits_is_left_alone(factor, reason):
    told = memory.token_budget(
        case(with_micro_batches(), "sync", config=LONG, devices=memory_of(factor))
    )
    assert reason in told


def test_emulated_devices_hold_any_budget_and_the_smallest_that_gains_is_asked_for():
    """Two micro-batches of 2 s: twice the budget makes them one, and more makes no fewer."""
    work = job("sync", lengths=(512,), train_batch=4, mini_batch=4, token_s=0.001, **BUDGET)
    training = replace(work.training, fixed_s=0.1, per_micro_batch_s=2.0, tokens=(2048.0, 2048.0))
    asked = case(replace(work, training=training), "sync", config=LONG)
    run = replace(asked.report.run, device_kinds=("emulated",))
    found = memory.token_budget(replace(asked, report=replace(asked.report, run=run)))
    assert found.changes == {"token_budget": 2048}
    assert "measure the headroom of real ones first" in found.says
    assert "not sampled" in memory.token_budget(asked)


def test_where_memory_and_the_longest_sequence_cross_no_budget_is_feasible():
    found = memory.token_budget(
        case(with_micro_batches(), "sync", config=LONG, devices=memory_of(0.6))
    )
    assert found.says.startswith("No token budget is feasible")
    assert found.changes == {}


@pytest.mark.parametrize(
    ("verdict", "text"),
    [("one_replica", "`replica1` carries 90%"), ("serialized", "1.2 requests are in flight")],
)
def test_requests_that_do_not_spread_are_told(verdict, text):
    spread = RequestSpread(
        verdict,
        {"replica1": 0.9, "replica2": 0.1},
        {"replica1": 0.9, "replica2": 0.1},
        "replica1",
        100,
        1.2,
        None,
    )
    found = routing.request_routing(case(None, balance=balance(requests=spread)))
    assert text in found.says
    even = replace(spread, verdict="even")
    assert isinstance(routing.request_routing(case(None, balance=balance(requests=even))), str)


@pytest.mark.parametrize(("prompts", "fires"), [(121, True), (129, True), (137, False)])
def test_padding_is_told_from_a_twentieth_on(prompts, fires):
    # 8 ranks, 7 of 128, 136 and 144 sequences are padding: 5.5, 5.1 and 4.9 %.
    work = job("sync", train_batch=prompts, mini_batch=prompts, trainer_devices=8)
    found = routing.divisibility(case(work, "sync"))
    assert fires == (not isinstance(found, str))


# ---- tier 4 --------------------------------------------------------------------------------

QUOTA = {"lengths": (4,), "train_s": 3.0, "sync_step": 4, "mini_batch": 4}
HELD = {("trainer", "wait_samples"): 0.4}


def kl(level: str):
    return replace(sample("fully_async").quality, kl=Kl(0.001, 0.002, 3.0, level))


def test_staleness_is_raised_to_where_the_wait_stops_falling():
    found = staleness.raise_staleness(case(job(**QUOTA), bubbles=HELD, quality=kl("healthy")))
    value = found.changes["staleness_threshold"]
    assert 0 < value <= staleness.SAFE_DECOUPLED
    assert found.overrides == (f"async_training.staleness_threshold={value}",)
    # Beyond it, the wait is the same.
    more = case(job(**QUOTA)).effect({"staleness_threshold": value + 0.3})
    waits = [e.after.trainer_wait_share.value for e in (found.effect, more)]
    assert waits[1] > waits[0] - staleness.PLATEAU - 1e-9


@pytest.mark.parametrize(
    ("waits", "level", "config", "now", "reason"),
    [
        (0.07, "healthy", {}, 0.0, "the trainer waits 7.0%"),
        (0.40, "raised", {}, 0.0, "rollout_corr/kl is raised"),
        (0.40, "healthy", {"algorithm": {"rollout_correction": {"bypass_mode": True}}}, 0.5,
         "0.5 is what is safe"),
        (0.40, "healthy", {}, 0.9, "plateau"),
    ],
)  # fmt: skip
def test_staleness_stays_where_it_would_not_help_or_not_be_safe(waits, level, config, now, reason):
    told = staleness.raise_staleness(
        case(job(**QUOTA, staleness_threshold=now), config=config, quality=kl(level),
             bubbles={("trainer", "wait_samples"): waits})
    )  # fmt: skip
    assert reason in told


@pytest.mark.parametrize(
    ("collapsed", "level", "fires"),
    [(True, "sequence", True), (False, "sequence", False), (True, "token", False)],
)
def test_weights_of_sequences_that_collapse_become_weights_of_tokens(collapsed, level, fires):
    size = EffectiveSampleSize(0.3, 0.1, 0.05, collapsed, -0.5)
    quality = replace(sample("fully_async").quality, effective_sample_size=size)
    config = {"algorithm": {"rollout_correction": {"rollout_is": level}}}
    found = staleness.sampling_collapse(case(None, quality=quality, config=config))
    assert fires == (not isinstance(found, str))


# ---- all of them ---------------------------------------------------------------------------


def test_a_run_that_stands_still_gets_no_advice():
    alarm = Alarm("no_progress", "trainer", 0, 900.0, 300.0, "nothing has ended for 15 min", {})
    still = case(job(**SPARE), idle={"rollouter": 0.9}, liveness=Liveness((alarm,), ()))
    found = advise(still)
    assert found.suppressed == "nothing has ended for 15 min"
    assert (found.findings, found.first) == ((), None)


def quiet(mode: str = "fully_async", **settings):
    """Nothing idles, waits or fails."""
    plain = balance(kv_pressure=(), versions=(), replicas=(), ranks=None, requests=None)
    trust = replace(sample("fully_async").trust, hook_share=0.0)
    return case(job(**SPARE), mode, slots=SlotUse({}, ()), balance=plain, trust=trust, sync=None,
                lengths=tails(0.0), **settings)  # fmt: skip


def test_nothing_to_gain_is_an_answer():
    found = advise(quiet())
    assert found.answer.startswith("Nothing to gain")
    assert set(found.cleared) == {rule.name for rule in RULES}


def test_the_cheapest_finding_comes_first():
    found = advise(quiet(idle={"rollouter": 0.6}, states={("trainer", "weight_sync"): 0.2}))
    assert found.first is not None
    assert found.first.rule == "fewer_rollouters"
    assert found.answer == f"First: {found.first.says}"
    assert [one.tier for one in found.findings] == sorted(one.tier for one in found.findings)


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


def test_devices_are_given_in_whole_nodes_where_that_is_possible():
    config = {"rollout": {"nnodes": 4, "n_gpus_per_node": 8}}
    assert pool_override("fully_async", "rollout_devices", 16, config) == ("rollout.nnodes=2",)
    assert pool_override("fully_async", "rollout_devices", 6, config) == (
        "rollout.nnodes=1", "rollout.n_gpus_per_node=6",
    )  # fmt: skip
    assert Knobs(mode="sync").devices == 1


def test_nodes_that_are_not_whole_get_no_more_devices_than_they_have():
    config = {
        "rollout": {"nnodes": 4, "n_gpus_per_node": 8}, "trainer": {"nnodes": 4,
        "n_gpus_per_node": 8}, "actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 4}},
    }  # fmt: skip
    assert pool_override("fully_async", "rollout_devices", 20, config) == (
        "rollout.nnodes=5", "rollout.n_gpus_per_node=4",
    )  # fmt: skip
    assert pool_override("fully_async", "trainer_devices", 20, config) == (
        "trainer.nnodes=4", "trainer.n_gpus_per_node=5",
    )  # fmt: skip


# ---- command and documentation -------------------------------------------------------------


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
