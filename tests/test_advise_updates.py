"""What the advisor says of updates: their size, their share per rank and the memory they take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import balance, case, fired, predicted
from simulated import job

from rlinsight.analyzers.advise.rules import batching, memory, routing, update_size
from rlinsight.analyzers.devices.memory import RankMemory, RankSpread
from rlinsight.analyzers.devices.report import DeviceReport
from rlinsight.analyzers.engines.ranks import RankBalance
from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate.fits import Fit

# -- ranks ---------------------------------------------------------------------------------

ACTOR = "actor_rollout_ref.actor"
DYNAMIC = {"actor_rollout_ref": {"actor": {"use_dynamic_bsz": True}}}
RANKS = RankBalance("update_actor", 10, 0.3, 0.5, 0.0, 0.12, ())


@pytest.mark.parametrize(
    ("mode", "lost", "config", "override"),
    [
        ("fully_async", 0.12, {}, "trainer.balance_batch=True"),
        ("fully_async", 0.12, {"trainer": {"balance_batch": True}},
         f"{ACTOR}.use_dynamic_bsz=True"),
        ("fully_async", 0.08, {}, None),
        ("fully_async", 0.12, {"trainer": {"balance_batch": True}, **DYNAMIC}, None),
        ("sync", 0.12, {"trainer": {"use_v1": False}}, "trainer.balance_batch=True"),
        *((mode, 0.12, {"trainer": {"use_v1": True, "balance_batch": False}},
           f"{ACTOR}.use_dynamic_bsz=True") for mode in batching.BALANCED),
        *((mode, 0.12, DYNAMIC, None) for mode in batching.BALANCED),
    ],
)  # fmt: skip
def test_unequal_ranks_are_balanced_then_made_dynamic(mode, lost, config, override):
    """The v1 trainers balance whatever `balance_batch` says: only the micro-batches are left."""
    ranks = balance(ranks=replace(RANKS, lost_share=lost))
    found = batching.dp_imbalance(case(None, mode, config=config, balance=ranks))
    assert (None if isinstance(found, str) else found.overrides[0]) == override


@pytest.mark.parametrize(("prompts", "fires"), [(121, True), (129, True), (137, False)])
def test_padding_is_told_from_a_twentieth_on(prompts, fires):
    # 8 ranks, 7 of 128, 136 and 144 sequences are padding: 5.5, 5.1 and 4.9 %.
    work = job("sync", train_batch=prompts, mini_batch=prompts, trainer_devices=8)
    found = routing.divisibility(case(work, "sync"))
    assert fires == (not isinstance(found, str))


MEGATRON = {"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2,
            "context_parallel_size": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("actor", "told"),
    [
        # 121 sequences: 15 short of 8 x 17 = 136 on 16 ranks of 16 devices.
        ({"ulysses_sequence_parallel_size": 2}, None),
        ({"strategy": "megatron", "ulysses_sequence_parallel_size": 2, "megatron": MEGATRON},
         "121 sequences an update divide by 2 ranks, 1 short"),
        ({"strategy": "megatron", "megatron": {**MEGATRON, "context_parallel_size": 4}},
         "16 trainer devices do not form whole ranks"),
    ],
)  # fmt: skip
def test_ranks_are_devices_that_hold_the_model_once(actor, told):
    """Megatron's tensor, pipeline and context parallelism count, and Ulysses does not."""
    config = {"actor_rollout_ref": {"actor": actor}}
    work = job("sync", train_batch=121, mini_batch=121, trainer_devices=16)
    found = routing.divisibility(case(work, "sync", config=config))
    assert (None if fired(found) else found) == told


# -- memory --------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("factor", "budget", "proposed"), [(1.5, 1536, 2048), (1.26, 1200, 1512), (1.5, 300, 450)]
)
def test_a_budget_is_only_rounded_where_that_leaves_it_larger(factor, budget, proposed):
    """1512 would be 1024, less than the run had; 450 would be 0."""
    work = with_micro_batches()
    work = replace(work, knobs=replace(work.knobs, token_budget=budget))
    short = {"data": {"max_prompt_length": 24, "max_response_length": 200}}
    asked = case(work, "sync", config=short, devices=memory_of(factor))
    predicted(asked, {"token_budget": proposed}, Estimate(0.05, 0.01, 0.09))
    assert memory.token_budget(asked).changes == {"token_budget": proposed}


@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_the_budget_that_just_ran_is_feasible(factor):
    """The longest sequence of 1100 fits in 1200, though not in 1024, the multiple of 512 below."""
    work = with_micro_batches()
    work = replace(work, knobs=replace(work.knobs, token_budget=1200))
    long = {"data": {"max_prompt_length": 100, "max_response_length": 1000}}
    told = memory.token_budget(case(work, "sync", config=long, devices=memory_of(factor)))
    assert told == (
        f"the budget of 1200 uses the memory well (feasible from 1100 to {round(1200 * factor)})"
    )


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


@pytest.mark.parametrize(
    ("actor", "longest"),
    [
        ({"ulysses_sequence_parallel_size": 3}, 342),
        ({"strategy": "megatron", "ulysses_sequence_parallel_size": None,
          "megatron": {**MEGATRON, "context_parallel_size": 2}}, 512),
    ],
)  # fmt: skip
def test_a_sequence_is_shared_by_ulysses_or_by_megatrons_context_parallelism(actor, longest):
    config = {**LONG, "actor_rollout_ref": {"actor": actor}}
    told = memory.token_budget(
        case(with_micro_batches(), "sync", config=config, devices=memory_of(1.0))
    )
    assert f"feasible from {longest} to 1024" in told


def test_where_memory_and_the_longest_sequence_cross_no_budget_is_feasible():
    found = memory.token_budget(
        case(with_micro_batches(), "sync", config=LONG, devices=memory_of(0.6))
    )
    assert found.says.startswith("No token budget is feasible")
    assert found.changes == {}


# -- how much an update trains on ----------------------------------------------------------


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
