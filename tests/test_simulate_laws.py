"""What must hold for every setting: prompts and time are conserved, order where there is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import job

from rlinsight.analyzers.simulate import simulate
from rlinsight.analyzers.simulate.fully_async import FullyAsync
from rlinsight.analyzers.simulate.predict import _RUNS
from rlinsight.analyzers.simulate.world import World

LENGTHS = (1, 2, 3, 5, 8, 13, 40)
COMMON = {
    "group_size": st.integers(1, 3),
    "max_num_seqs": st.integers(1, 8),
    "train_s": st.floats(0.1, 30.0),
    "per_running_s": st.floats(0.0, 0.5),
    "validation_interval": st.none() | st.integers(1, 3),
    "lengths": st.just(LENGTHS),
}
ASYNC = {
    **COMMON,
    "rollout_devices": st.integers(1, 3),
    "mini_batch": st.integers(1, 4),
    "sync_step": st.integers(1, 3),
    "require_batches": st.integers(1, 2),
    "staleness_threshold": st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.0]),
    "concurrent_samples": st.integers(1, 16),
    "partial_rollout": st.booleans(),
    "trainer_validates": st.booleans(),
}
V1 = {
    **COMMON,
    "warm_up_batches": st.integers(0, 2),
    "max_off_policy": st.none() | st.integers(2, 4),
    "off_policy_strategy": st.sampled_from(["drop", "wait"]),
}


def ran(mode: str, setting: dict, versions: int = 5):
    if mode == "separate_async":
        setting["train_batch"] = setting["mini_batch"] * setting["sync_step"]
    calibration = job(mode, **setting)
    run = _RUNS[mode](World(calibration, calibration.knobs, seed=0))
    return run, run.run(versions)


def check_time(account) -> None:
    """Every second of the trainer is in one state; no replica generates more than there is."""
    world = account.world
    assert sum(account.states.values()) == pytest.approx(world.now)
    for replica in range(len(world.replicas.busy_s)):
        assert -1e-6 <= world.replicas.busy(world.now, [replica]) <= world.now + 1e-6


@settings(max_examples=60)
@given(st.fixed_dictionaries(ASYNC))
def test_fully_async_conserves_samples_and_time(setting):
    run, account = ran("fully_async", setting)
    assert isinstance(run, FullyAsync)
    side, size = run.rollouter, setting["group_size"]
    trained = account.samples // size
    assert side.produced == trained + side.dropped + len(side.queue)
    assert side.submitted == side.produced + side.generating
    assert side.staleness_samples <= side.max_required
    check_time(account)


@settings(max_examples=60)
@given(
    st.sampled_from(["sync", "colocate_async", "separate_async"]),
    st.fixed_dictionaries(V1),
    st.integers(1, 3),
    st.booleans(),
)
def test_v1_conserves_prompts_and_time(mode, setting, sync_step, switch):
    if mode == "separate_async":
        setting |= {"sync_step": sync_step, "mini_batch": 2, "hybrid_switch": switch}
    run, account = ran(mode, setting)
    buffer, size = run.buffer, setting["group_size"]
    trained = account.samples // size
    assert buffer.produced == trained + buffer.dropped + buffer.unconsumed
    assert buffer.submitted == buffer.produced + buffer.generating
    check_time(account)


@settings(max_examples=15)
@given(st.sampled_from([2.0, 5.0, 20.0]), st.integers(1, 3), st.integers(0, 5))
def test_more_staleness_never_costs_throughput(train_s, sync_step, seed):
    # Equal lengths: nothing is drawn, so that the order must hold exactly.
    found = [
        simulate(
            job(train_s=train_s, sync_step=sync_step, staleness_threshold=s, lengths=(4 + seed,)),
            seeds=(0,), versions=8,
        ).tokens_per_s.value
        for s in (0.0, 0.5, 1.0)
    ]  # fmt: skip
    assert found[0] <= found[1] * (1 + 1e-9)
    assert found[1] <= found[2] * (1 + 1e-9)


@settings(max_examples=15)
@given(st.sampled_from(["sync", "fully_async"]), st.floats(0.5, 20.0), st.floats(1.1, 3.0))
def test_slower_training_never_shortens_a_step(mode, train_s, factor):
    fast, slow = (
        simulate(job(mode, train_s=seconds), seeds=(0,), versions=6).step_s.value
        for seconds in (train_s, train_s * factor)
    )
    assert slow >= fast - 1e-9


def test_more_replicas_never_slow_sync():
    found = [
        simulate(
            job("sync", trainer_devices=devices, lengths=LENGTHS, train_batch=12, max_num_seqs=2),
            seeds=(0, 1), versions=6,
        )
        for devices in (1, 2, 4)
    ]  # fmt: skip
    steps = [one.step_s.value for one in found]
    assert steps == sorted(steps, reverse=True)
