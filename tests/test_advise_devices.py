"""What the advisor says of devices: who has too many or too few, and where none would help."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cases import SHORT, SPARE, S, case, fired, sample
from simulated import job

from rlinsight.analyzers.advise.rules import asynchronous, resources, tools, validation
from rlinsight.analyzers.engines.slots import SlotUse
from rlinsight.analyzers.result import ActivityTime
from rlinsight.analyzers.simulate import Knobs
from rlinsight.analyzers.simulate.knobs import knobs_of_run
from rlinsight.analyzers.simulate.overrides import pool_overrides
from rlinsight.analyzers.simulate.placement import Shape, fit, placed
from rlinsight.errors import ConfigError

# -- rollouters ----------------------------------------------------------------------------


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


# -- taking turns --------------------------------------------------------------------------


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


# -- moving devices ------------------------------------------------------------------------

#: Training is in proportion to tokens, so that the trainer would use another device.
MOVABLE = {"rollout_devices": 3, "lengths": (4,), "staleness_threshold": 1.0, "group_size": 2}


def training_bound(**settings):
    work = job(**{**MOVABLE, **settings})
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
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
    megatron = {"actor_rollout_ref": {"actor": {"strategy": "megatron", "megatron": sizes}}}
    asked = case(training_bound(), config=megatron)
    assert [resources.divides(asked, n) for n in (0, 2, 4, 8, 12)] == [
        False, False, True, True, False,
    ]  # fmt: skip


def test_a_trainer_that_more_devices_do_not_speed_up_gets_none():
    work = job(**MOVABLE, train_s=30.0)
    told = resources.fewer_rollouters(case(work, idle={"rollouter": 0.6}, wall_clock=True))
    assert told.startswith("no smaller number of replicas")


def test_another_mode_is_predicted_with_what_the_configuration_says_of_it():
    """colocate_async has a sampler that may drop what is old, and its own warm-up; sync has not."""
    config = {"trainer": {"v1": {
        "sampler": {"max_off_policy_threshold": 1, "max_off_policy_strategy": "wait"},
        "colocate_async": {"num_warmup_batches": 4},
    }}}  # fmt: skip
    asynchronous_now = knobs_of_run("sync", config).changed({"mode": "colocate_async"})
    assert asynchronous_now == knobs_of_run("colocate_async", config)
    assert asynchronous_now.max_off_policy == 1
    assert asynchronous_now.warm_up_batches == 4


# -- whole nodes ---------------------------------------------------------------------------


def test_devices_are_given_in_whole_nodes_where_that_is_possible():
    config = {"rollout": {"nnodes": 4, "n_gpus_per_node": 8}}
    assert pool_overrides("fully_async", {"rollout_devices": 16}, config) == ("rollout.nnodes=2",)
    assert pool_overrides("fully_async", {"rollout_devices": 6}, config) == (
        "rollout.nnodes=1", "rollout.n_gpus_per_node=6",
    )  # fmt: skip
    assert Knobs(mode="sync").devices == 1


def test_nodes_that_are_not_whole_get_no_more_devices_than_they_have():
    config = {
        "rollout": {"nnodes": 4, "n_gpus_per_node": 8}, "trainer": {"nnodes": 4,
        "n_gpus_per_node": 8}, "actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 4}},
    }  # fmt: skip
    assert pool_overrides("fully_async", {"rollout_devices": 20}, config) == (
        "rollout.nnodes=5", "rollout.n_gpus_per_node=4",
    )  # fmt: skip
    assert pool_overrides("fully_async", {"trainer_devices": 20}, config) == (
        "trainer.nnodes=4", "trainer.n_gpus_per_node=5",
    )  # fmt: skip


def test_both_pools_find_room_on_the_nodes_that_there_are():
    """Groups of 6, 6 and 4 devices do not fit two nodes of 8; of 4, 4, 4 and 4 they do."""
    config = {
        "rollout": {"nnodes": 1, "n_gpus_per_node": 8}, "trainer": {"nnodes": 1,
        "n_gpus_per_node": 8}, "actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 4}},
    }  # fmt: skip
    wanted = {"trainer_devices": 12, "rollout_devices": 4}
    assert pool_overrides("fully_async", wanted, config) == (
        "trainer.nnodes=3", "trainer.n_gpus_per_node=4",
        "rollout.nnodes=1", "rollout.n_gpus_per_node=4",
    )  # fmt: skip


def test_devices_that_no_node_has_room_for_are_refused():
    """A second replica of 8 devices, where the trainer gives up two of three nodes of 4."""
    now = {"trainer": Shape(3, 4), "rollout": Shape(1, 8)}
    with pytest.raises(ConfigError, match="nodes of 4, 4, 4, 8 have room for, found 4 for `trai"):
        placed(now, {"trainer": 4, "rollout": 16}, {"rollout": 8})


@pytest.mark.parametrize(
    ("shapes", "nodes", "room"),
    [
        ([Shape(2, 6), Shape(1, 4)], [8, 8], False),
        ([Shape(3, 4), Shape(1, 4)], [8, 8], True),
        ([Shape(2, 3), Shape(3, 2)], [6, 6], True),
        ([Shape(2, 3), Shape(3, 2)], [7, 5], True),
        ([Shape(2, 3), Shape(3, 2)], [4, 4, 4], False),
        ([Shape(2, 3), Shape(3, 2)], [4, 8], True),
        ([Shape(1, 8), Shape(1, 4), Shape(2, 2)], [8, 8], True),
        ([Shape(1, 8), Shape(1, 4), Shape(3, 2)], [8, 8], False),
    ],
)
def test_groups_fit_where_each_has_a_node(shapes, nodes, room):
    assert fit(shapes, nodes) is room


# -- tools ---------------------------------------------------------------------------------


def with_tools(seconds: float, used: float, mode: str = "fully_async", **lane: Any):
    """So many tool-seconds beside one request in flight, both in a window of 100 s.

    Ten thousand more tool calls lie outside of it, in a run that is ten times as long.
    """
    base = sample("fully_async")
    start = base.window.start_ns
    usual = {"engine_kind": "standalone", "mean_running": 1.0, "utilization": used}
    replica = replace(base.slots.lanes[0], **{**usual, **lane})
    return {
        "activities": (ActivityTime("other", "tool", 4, 10_000, 0, 500.0, 1.0, seconds),),
        "slots": SlotUse({}, (replica,)),
        "run": replace(base.run, duration_s=1000.0, mode=mode),
        "window": replace(base.window, end_ns=start + 100 * S),
    }


@pytest.mark.parametrize(
    ("seconds", "used", "fires"), [(67, 0.3, True), (66, 0.3, False), (400, 0.49, True),
                                 (400, 0.51, False)],
)  # fmt: skip
def test_rollouts_that_wait_for_tools_need_trajectories_not_devices(seconds, used, fires):
    # 67 tool-seconds of 167 are 40.1 %.
    work = job(concurrent_samples=16, staleness_threshold=20.0)
    found = tools.tool_bound(case(work, **with_tools(seconds, used)))
    assert fired(found) == fires
    if fires:
        assert found.overrides == ("async_training.concurrent_samples_per_replica=32",)
        assert found.effect is None  # tools are not simulated


def test_where_the_quota_limits_trajectories_no_other_limit_is_raised():
    """16 prompts per replica, of which the quota lets 2 x 1.5 begin."""
    work = job(concurrent_samples=16, staleness_threshold=0.5)
    found = tools.tool_bound(case(work, **with_tools(200, 0.1)))
    assert "The staleness quota (3 prompts) is what limits" in found.says
    assert found.overrides == ()


def test_elsewhere_all_trajectories_run_already_and_tools_get_more_workers():
    """More calls of one turn would be executed, where a run cuts them: no tuning."""
    rollout = {"agent": {"num_workers": 8}, "multi_turn": {"max_parallel_calls": 1}}
    config = {"actor_rollout_ref": {"rollout": rollout}}
    found = tools.tool_bound(case(job("sync"), config=config, **with_tools(200, 0.1, "sync")))
    assert found.overrides == ("actor_rollout_ref.rollout.agent.num_workers=16",)
    assert "run at once already" in found.says


@pytest.mark.parametrize(
    ("generates", "fires"), [(1.0, True), (0.41, True), (0.39, False), (0.2, False), (0.0, True)]
)
def test_a_replica_that_sleeps_half_of_the_time_is_as_full_as_while_it_is_awake(generates, fires):
    """A fifth of its slots over the window are all of them in a fifth of it."""
    slots = with_tools(200, 0.2, "sync", engine_kind="hybrid", generating_ratio=generates)
    assert fired(tools.tool_bound(case(job("sync"), **slots))) == fires


def test_without_tools_nothing_is_said_and_with_them_no_devices_are_added():
    assert tools.tool_bound(case(job())) == "no tools were recorded"
    told = resources.more_rollouters(
        case(job(), bubbles={("trainer", "wait_samples"): 0.7}, **with_tools(400, 0.3))
    )
    assert "devices would wait for them too" in told
