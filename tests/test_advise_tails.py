"""What the advisor says of long tails and of responses that are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import case, fired, sample, tails
from simulated import job

from rlinsight.analyzers.advise.rules import batching, tail
from rlinsight.runs.settings import compose
from rlinsight.runs.tune.change import changed


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


@pytest.mark.parametrize(("share", "fires"), [(0.16, True), (0.14, False)])
def test_tails_are_answered_with_fewer_syncs(share, fires):
    work = job(lengths=(1, 2, 30), train_s=2.0, staleness_threshold=0.5, mini_batch=4)
    found = tail.long_tail(case(work, lengths=tails(share)))
    assert fires == (not isinstance(found, str))


def test_a_tail_that_no_setting_cures_is_to_be_fixed_first():
    told = tail.long_tail(case(job("sync"), "sync", lengths=tails(0.3)))
    assert "fix the tail first" in told


def test_where_no_setting_cures_a_tail_the_maximum_may():
    # One in ten responses is forty times as long as the rest, and each batch waits for one.
    work = job("sync", lengths=(*([10] * 9), 400), train_s=1.0, train_batch=32, mini_batch=32)
    lengths = sample("sync").lengths
    lengths = replace(lengths, tail=replace(lengths.tail, share_of_busy=0.5), p99=60.0)
    found = tail.long_tail(case(work, "sync", lengths=lengths))
    assert found.overrides == ("data.max_response_length=64",)
    assert found.effect.tokens_per_s.low > 0


OVERLONG = "reward.reward_kwargs.overlong_buffer_cfg"


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
        assert f"++{OVERLONG}.len=256" in found.overrides


@pytest.mark.parametrize(
    "own",
    [
        (),
        ("+reward.reward_kwargs.max_resp_len=9",
         "+reward.reward_kwargs.overlong_buffer_cfg={enable:False,len:9,penalty_factor:0.5}"),
    ],
)  # fmt: skip
def test_the_penalty_is_accepted_by_verl_with_and_without_keys_of_the_run(own):
    config = {"data": {"max_response_length": 1024}}
    found = tail.overlong(case(None, config=config, lengths=cut(0.3)))
    settings = compose("verl.trainer.main_ppo", [*own, *found.overrides])
    assert settings.get("reward.reward_kwargs") == {
        "max_resp_len": 1024,
        "overlong_buffer_cfg": {"enable": True, "len": 256, "penalty_factor": 1.0, "log": False},
    }
    document = changed({}, found.overrides)
    assert document["overrides"][f"++{OVERLONG}.enable"] is True, "as `tune` writes it"


def test_overlong_responses_that_are_penalized_already_are_left_alone():
    config = {"reward": {"reward_kwargs": {"overlong_buffer_cfg": {"enable": True}}}}
    assert "penalized already" in tail.overlong(case(None, config=config, lengths=cut(0.3)))
