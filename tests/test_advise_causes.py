"""The advisor's rules about tools, corruption, update sizes, syncs and staleness: both sides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case, sample
from simulated import job

import rlinsight
from rlinsight.analyzers.advise.rules import (
    corruption,
    engine,
    resources,
    staleness,
    sync,
    tail,
    tools,
    update_size,
)
from rlinsight.analyzers.engines.replica_speed import ReplicaSpeed
from rlinsight.analyzers.engines.slots import KindSlots, SlotUse
from rlinsight.analyzers.quality.guard import Kl
from rlinsight.analyzers.quality.trends import Trend
from rlinsight.analyzers.result import ActivityTime
from rlinsight.analyzers.simulate.fits import Fit
from rlinsight.analyzers.staleness.coverage import AnalyticCoverage


def fired(found) -> bool:
    return not isinstance(found, str)


# ---- tools ---------------------------------------------------------------------------------


def with_tools(spans: int, used: float, *, mean_s: float = 1.0, running: float = 1.0):
    """So many tool calls of a second each, beside one request in flight over 100 s."""
    base = sample("fully_async")
    lane = replace(base.slots.lanes[0], mean_running=running, utilization=used)
    return {
        "activities": (ActivityTime("other", "tool", 4, spans, 0, 50.0, mean_s),),
        "slots": SlotUse({}, (lane,)),
        "run": replace(base.run, duration_s=100.0),
    }


@pytest.mark.parametrize(
    ("spans", "used", "fires"), [(67, 0.3, True), (66, 0.3, False), (400, 0.49, True),
                                 (400, 0.51, False)],
)  # fmt: skip
def test_rollouts_that_wait_for_tools_need_trajectories_not_devices(spans, used, fires):
    # 67 tool-seconds of 167 are 40.1 %.
    found = tools.tool_bound(case(job(concurrent_samples=16), **with_tools(spans, used)))
    assert fired(found) == fires
    if fires:
        assert found.overrides == ("async_training.concurrent_samples_per_replica=32",)
        assert found.effect is None  # tools are not simulated


def test_elsewhere_agent_workers_and_calls_are_doubled():
    rollout = {"agent": {"num_workers": 8}, "multi_turn": {"max_parallel_calls": 1}}
    config = {"actor_rollout_ref": {"rollout": rollout}}
    found = tools.tool_bound(case(job("sync"), "sync", config=config, **with_tools(200, 0.1)))
    assert found.overrides == (
        "actor_rollout_ref.rollout.agent.num_workers=16",
        "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=2",
    )


def test_without_tools_nothing_is_said_and_with_them_no_devices_are_added():
    assert tools.tool_bound(case(job())) == "no tools were recorded"
    told = resources.more_rollouters(
        case(job(), bubbles={("trainer", "wait_samples"): 0.7}, **with_tools(400, 0.3))
    )
    assert "devices would wait for them too" in told


# ---- moving devices ------------------------------------------------------------------------

#: Training is in proportion to tokens, so that the trainer would use another device.
SPARE = {"rollout_devices": 3, "lengths": (4,), "staleness_threshold": 1.0, "group_size": 2}


def training_bound(**settings):
    work = job(**{**SPARE, **settings})
    return replace(work, training=replace(work.training, fixed_s=0.0, per_token_s=2.0))


def test_by_the_wall_clock_spare_devices_move_to_the_trainer():
    found = resources.fewer_rollouters(
        case(training_bound(), idle={"rollouter": 0.6}, wall_clock=True,
             config={"rollout": {"nnodes": 3, "n_gpus_per_node": 1},
                     "trainer": {"nnodes": 1, "n_gpus_per_node": 1}})
    )  # fmt: skip
    assert found.changes == {"rollout_replicas": 2, "trainer_devices": 2}
    assert set(found.overrides) == {"rollout.nnodes=2", "trainer.nnodes=2"}
    assert "the trainer takes their devices" in found.says
    assert found.effect.tokens_per_s.low > 0.3


def test_a_trainer_only_takes_devices_that_its_batches_divide_by():
    # 4 sequences an update: 2 devices divide them, 3 do not, 4 would.
    asked = case(training_bound(), idle={"rollouter": 0.6}, wall_clock=True)
    assert [resources.divides(asked, n) for n in (1, 2, 3, 4)] == [True, True, False, True]
    half = {"actor_rollout_ref": {"actor": {"ulysses_sequence_parallel_size": 2}}}
    asked = case(training_bound(), config=half)
    assert [resources.divides(asked, n) for n in (1, 2, 3, 4)] == [False, True, False, True]


def test_a_trainer_that_more_devices_do_not_speed_up_gets_none():
    work = job(**SPARE, train_s=30.0)
    told = resources.fewer_rollouters(case(work, idle={"rollouter": 0.6}, wall_clock=True))
    assert told.startswith("no smaller number of replicas")


# ---- corruption ----------------------------------------------------------------------------


def quality(**parts):
    return replace(sample("fully_async").quality, **parts)


def kl(times: float, level: str) -> Kl:
    return Kl(times * 3e-4, times * 3e-4, times, level)


def lagging(lag: float | None):
    base = sample("fully_async").staleness
    return replace(base, worst_token=replace(base.worst_token, mean_versions=lag))


@pytest.mark.parametrize(
    ("level", "lag", "fires"),
    [
        ("raised", 0.09, True), ("raised", 0.11, False), ("raised", None, False),
        ("healthy", 0.0, False), ("broken", 2.0, True),
    ],
)  # fmt: skip
def test_policies_that_differ_at_equal_weights_are_no_staleness(level, lag, fires):
    found = corruption.policy_mismatch(
        case(None, quality=quality(kl=kl(20, level)), staleness=lagging(lag))
    )
    assert fired(found) == fires
    if fires:
        assert "mixture-of-experts" in found.says
        assert found.overrides == ()


def test_engines_with_routing_replay_are_told_to_use_it():
    actor = {"strategy": "megatron", "megatron": {"router_replay": {"mode": "disabled"}}}
    found = corruption.policy_mismatch(
        case(None, quality=quality(kl=kl(20, "raised")), staleness=lagging(0.0),
             config={"actor_rollout_ref": {"actor": actor}})
    )  # fmt: skip
    assert found.overrides == (
        "actor_rollout_ref.actor.megatron.router_replay.mode=R3",
        "actor_rollout_ref.rollout.enable_rollout_routing_replay=True",
    )


@pytest.mark.parametrize(
    ("invalid", "flat", "signs"),
    [(0.05, 0.0, 1), (0.04, 0.89, 0), (0.0, 0.90, 1), (0.2, 1.0, 2), (None, None, 0)],
)
def test_trajectories_without_results_or_differences_are_told(invalid, flat, signs):
    found = corruption.broken_scaffold(
        case(None, quality=quality(invalid_ratio=invalid, zero_variance_share=flat))
    )
    assert (len(found.evidence) if fired(found) else 0) == signs


# ---- engines -------------------------------------------------------------------------------

#: Sixteen slots, of which the limit of one prompt per replica uses one.
LIMITED = {"rollout_devices": 2, "lengths": (8, 12), "train_s": 1.0, "max_num_seqs": 16,
           "mini_batch": 8, "staleness_threshold": 1.0, "concurrent_samples": 1}  # fmt: skip


def slots(used: float) -> SlotUse:
    return SlotUse({"standalone": KindSlots(2, used, 1.0, 0.0)}, ())


@pytest.mark.parametrize(
    ("used", "waits", "limit", "fires"),
    [
        (0.69, 0.3, 1, True), (0.71, 0.3, 1, False), (0.3, 0.09, 1, False), (0.3, 0.3, 8, False),
    ],
)  # fmt: skip
def test_a_limit_of_prompts_that_leaves_slots_unused_is_raised(used, waits, limit, fires):
    plain = replace(sample("fully_async").balance, kv_pressure=())
    work = job(**{**LIMITED, "concurrent_samples": limit})
    found = engine.concurrent_samples(
        case(work, slots=slots(used), balance=plain, bubbles={("trainer", "wait_samples"): waits})
    )
    assert fired(found) == fires
    if fires:
        assert found.overrides == ("async_training.concurrent_samples_per_replica=4",)


def topology(slow_node: str) -> rlinsight.Topology:
    devices = [rlinsight.Device(f"{node}/0", node=node, index=0, kind="cuda", pool="rollout")
               for node in ("n1", "n2")]  # fmt: skip
    lanes = [rlinsight.Lane("replica1", role="replica", devices=["n1/0"], engine_kind="standalone"),
             rlinsight.Lane("replica2", role="replica", devices=[f"{slow_node}/0"],
                            engine_kind="standalone")]  # fmt: skip
    return rlinsight.Topology(devices=devices, lanes=lanes)


@pytest.mark.parametrize(("node", "named"), [("n2", True), ("n1", False)])
def test_a_node_is_named_where_it_holds_the_slow_replicas_alone(node, named):
    speeds = (ReplicaSpeed("replica1", 10, 1000, 20.0, 4.0, 1.0, False),
              ReplicaSpeed("replica2", 10, 1000, 30.0, 4.0, 1.6, True))  # fmt: skip
    asked = case(None, balance=replace(sample("fully_async").balance, replicas=speeds))
    asked.topology = topology(node)
    assert ("node `n2`" in engine.slow_replica(asked).says) == named


# ---- syncs ---------------------------------------------------------------------------------


def moving(part: float, dominant: str = "transfer"):
    report = sample("fully_async").sync
    kind = replace(report.by_backend[report.main], syncs=10, total_s=10.0, dominant=dominant,
                   mean_s={"transfer": part})  # fmt: skip
    return replace(report, main="naive", by_backend={"naive": kind})


def on(kind: str):
    return replace(sample("fully_async").run, device_kinds=(kind,))


ENGINE = "actor_rollout_ref.rollout.checkpoint_engine"


def checkpoint_engine(**settings):
    return {"actor_rollout_ref": {"rollout": {"checkpoint_engine": settings}}}


@pytest.mark.parametrize(
    ("share", "part", "fires"), [(0.08, 0.5, True), (0.07, 0.5, False), (0.2, 0.49, False)]
)
def test_moving_weights_is_made_faster_where_it_is_what_takes_long(share, part, fires):
    config = checkpoint_engine(backend="naive", update_weights_bucket_megabytes=2048)
    found = sync.sync_transfer(
        case(None, config=config, states={("trainer", "weight_sync"): share}, sync=moving(part),
             run=on("cuda"))
    )  # fmt: skip
    assert fired(found) == fires
    if fires:
        assert found.overrides == (f"{ENGINE}.backend=nccl",)


@pytest.mark.parametrize(
    ("kind", "settings", "override"),
    [
        ("npu", {"backend": "naive"}, f"{ENGINE}.backend=hccl"),
        ("cuda", {"backend": "nccl", "update_weights_bucket_megabytes": 512},
         f"{ENGINE}.update_weights_bucket_megabytes=1024"),
        ("cuda", {"backend": "nccl", "update_weights_bucket_megabytes": 8192}, None),
        ("cpu", {"backend": "naive"}, None),
    ],
)  # fmt: skip
def test_first_the_backend_then_the_buckets(kind, settings, override):
    found = sync.sync_transfer(
        case(None, config=checkpoint_engine(**settings), sync=moving(0.9), run=on(kind),
             states={("trainer", "weight_sync"): 0.2})
    )  # fmt: skip
    assert (found.overrides[0] if fired(found) else None) == override


# ---- how much an update trains on, and how often is synchronized ---------------------------


def constant(fixed_s: float, per_token_s: float, fit: Fit | None = None, **settings):
    """An update of 16 tokens."""
    work = job(**{"lengths": (4,), "mini_batch": 4, "sync_step": 2, "staleness_threshold": 1.0,
                  "rollout_devices": 2, **settings})  # fmt: skip
    training = replace(work.training, fixed_s=fixed_s, per_token_s=per_token_s, tokens=(16, 16))
    return replace(work, training=training, fits=(fit,) if fit else ())


@pytest.mark.parametrize(("per_token", "fires"), [(0.18, True), (0.19, False)])
def test_updates_that_are_mostly_their_own_are_made_larger(per_token, fires):
    # 1 s of 3.88 is 25.8 %; of 4.04 it is 24.8 %.
    found = update_size.mini_batch(case(constant(1.0, per_token)))
    assert fired(found) == fires
    if fires:
        assert found.changes == {"mini_batch": 8, "sync_step": 1}
        assert found.effect.tokens_per_s_per_device.low > 0


def test_a_constant_that_the_fit_cannot_tell_is_not_acted_on():
    fit = Fit("training.fixed_s", 1.0, 1.0, 0.6, 9)
    told = update_size.mini_batch(case(constant(1.0, 0.01, fit)))
    assert told == "what an update costs by itself is not identifiable: below noise"
    assert isinstance(update_size.mini_batch(case(constant(1.0, 0.01, sync_step=1))), str)


@pytest.mark.parametrize(
    ("waits", "pauses", "fires"), [(0.11, 0.11, True), (0.09, 0.5, False), (0.5, 0.09, False)]
)
def test_sides_that_take_turns_synchronize_half_as_often(waits, pauses, fires):
    work = job(lengths=(4,), train_s=3.0, costs={"sync_s": 2.0})
    found = update_size.sync_step(
        case(work, bubbles={("trainer", "wait_samples"): waits,
                            ("rollouter", "staleness_quota"): pauses})
    )  # fmt: skip
    assert fired(found) == fires
    if fires:
        assert found.overrides == ("async_training.trigger_parameter_sync_step=2",)


@pytest.mark.parametrize(
    ("level", "sync_s", "fires"), [("raised", 0.0, True), ("healthy", 0.0, False),
                                   ("raised", 3.0, False)],
)  # fmt: skip
def test_samples_get_fresher_where_it_costs_nothing(level, sync_s, fires):
    work = job(lengths=(4,), train_s=9.0, sync_step=4, staleness_threshold=1.0,
               costs={"sync_s": sync_s})  # fmt: skip
    found = update_size.fresher_samples(case(work, quality=quality(kl=kl(20, level))))
    assert fired(found) == fires
    if fires:
        assert found.changes == {"sync_step": 2}


# ---- staleness -----------------------------------------------------------------------------

QUOTA = {"lengths": (4, 8), "train_s": 8.0, "max_num_seqs": 8, "mini_batch": 4}


def rewards(mean: float, slope: float | None, significant: bool, volatility: float | None):
    trend = Trend(20, mean, mean, mean, slope, significant)
    return quality(kl=None, reward=trend, reward_volatility=volatility)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (rewards(0.4, 0.001, True, 0.19), None),
        (rewards(0.4, -0.001, True, 0.0), "the reward falls"),
        (rewards(0.4, -0.001, False, 0.0), None),
        (rewards(0.4, 0.001, True, 0.21), "volatility"),
    ],
)
def test_no_more_staleness_for_a_reward_that_is_not_stable(of, reason):
    found = staleness.raise_staleness(
        case(job(**QUOTA), quality=of, bubbles={("trainer", "wait_samples"): 0.3})
    )
    assert fired(found) == (reason is None)
    if reason is not None:
        assert reason in found


def covering(threshold: float, updates: int):
    ahead = threshold * updates
    analytic = AnalyticCoverage(threshold, updates, ahead, int(ahead), int(ahead) / updates)
    return replace(sample("fully_async").coverage, analytic=analytic)


def slow_trainer(threshold: float, **settings):
    """The trainer never waits, so that staleness buys nothing."""
    return job(**{"lengths": (4,), "train_s": 30.0, "sync_step": 8, "mini_batch": 4,
                  "max_num_seqs": 8, "staleness_threshold": threshold, **settings})  # fmt: skip


@pytest.mark.parametrize(
    ("threshold", "lower"), [(0.3, 0.25), (0.25, None), (0.2562, None), (0.2563, 0.25)]
)
def test_staleness_that_covers_no_further_update_is_given_up(threshold, lower):
    # 0.3 x 8 = 2.4 covers two updates in full, as 0.25 does.
    work = slow_trainer(threshold)
    found = staleness.staleness_coverage(case(work, coverage=covering(threshold, 8)))
    assert (found.changes["staleness_threshold"] if fired(found) else None) == lower


def test_staleness_that_is_worth_something_is_kept():
    work = job(lengths=(4, 8), train_s=8.0, max_num_seqs=8, mini_batch=4, staleness_threshold=0.7)
    told = staleness.staleness_coverage(case(work, coverage=covering(0.7, 1)))
    assert "is predicted to cost" in told


# ---- lengths -------------------------------------------------------------------------------


def cut(share: float | None):
    lengths = sample("fully_async").lengths
    return replace(lengths, cap=replace(lengths.cap, cap_share=share))


@pytest.mark.parametrize(("share", "fires"), [(0.10, True), (0.09, False), (None, False)])
def test_responses_that_are_cut_are_penalized(share, fires):
    config = {"data": {"max_response_length": 1024}}
    found = tail.overlong(case(None, config=config, lengths=cut(share)))
    assert fired(found) == fires
    if fires:
        assert found.overrides[0] == "reward.reward_manager.name=dapo"
        assert "len:256" in found.overrides[2]


def test_overlong_responses_that_are_penalized_already_are_left_alone():
    config = {"reward": {"reward_kwargs": {"overlong_buffer_cfg": {"enable": True}}}}
    assert "penalized already" in tail.overlong(case(None, config=config, lengths=cut(0.3)))


def test_where_no_setting_cures_a_tail_the_maximum_may():
    # One in ten responses is forty times as long as the rest, and each batch waits for one.
    work = job("sync", lengths=(*([10] * 9), 400), train_s=1.0, train_batch=32, mini_batch=32)
    lengths = sample("sync").lengths
    lengths = replace(lengths, tail=replace(lengths.tail, share_of_busy=0.5), p99=60.0)
    found = tail.long_tail(case(work, "sync", lengths=lengths))
    assert found.overrides == ("data.max_response_length=64",)
    assert found.effect.tokens_per_s.low > 0
