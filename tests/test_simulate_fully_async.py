"""The scheduling of fully_async, on timelines that can be followed by hand.

A response takes 4 s however many run, an update 3 s, a sync 1 s, unless a test says otherwise.
"""

from __future__ import annotations

import pytest
from simulated import job, marks, world

from rlinsight.analyzers.simulate import simulate
from rlinsight.analyzers.simulate.fully_async import FullyAsync
from rlinsight.analyzers.simulate.rollouter import Rollouter
from rlinsight.analyzers.simulate.world import World
from rlinsight.errors import RlinsightError


def test_without_staleness_generation_and_training_take_turns():
    # generate 0-4, train 4-7, sync 7-8; the quota of 2 lets nothing run beside.
    calibration = job(staleness_threshold=0.0)
    assert marks(calibration) == pytest.approx([0, 8, 16, 24, 32])
    found = simulate(calibration, seeds=(0,), versions=4)
    assert found.trainer_wait_share.value == pytest.approx(4 / 8)
    assert found.trainer_idle_ratio.value == pytest.approx(4 / 8)
    assert found.rollouter_idle_ratio.value == pytest.approx(4 / 8)
    assert found.lag_shares == {0: 1.0}
    assert found.step_s.value == pytest.approx(8.0)
    assert found.tokens_per_s.value == pytest.approx(2 * 4 / 8)
    assert found.tokens_per_s_per_device.value == pytest.approx(2 * 4 / 8 / 2)


def test_half_a_batch_of_staleness_is_half_a_version_of_lag():
    # Quota 3: the first window makes three, trains two; from then on one is left over.
    calibration = job(staleness_threshold=0.5)
    found = simulate(calibration, seeds=(0,), versions=4)
    assert found.lag_shares == {0: 0.5, 1: 0.5}
    assert found.lag_check.expected == 0.5


def test_a_batch_of_staleness_lets_the_trainer_run_without_waiting():
    # Quota 4: two are always ready; train 3 + sync 1.
    calibration = job(staleness_threshold=1.0, lengths=(2,))
    assert marks(calibration)[2:] == pytest.approx([10, 14, 18])
    found = simulate(calibration, seeds=(0,), versions=4)
    assert found.trainer_wait_share.value == 0
    assert found.mean_lag_versions.value == pytest.approx(1.0)


def test_several_updates_share_a_sync():
    # Four are made 0-4; update 4-7, update 7-10, sync 10-11.
    calibration = job(sync_step=2, staleness_threshold=0.0)
    assert marks(calibration) == pytest.approx([0, 11, 22, 33, 44])


def test_a_sync_waits_for_a_task_while_the_processor_holds_the_lock():
    # One sample at a time, a batch of one: sample 4-8 is aborted by the sync at 7-8 with 1 s to
    # go, goes on at 8, ends at 9. The processor waits for that with the lock held, so the reset
    # does too: 1 s in each version, and nothing else waits.
    calibration = job(
        mini_batch=1, staleness_threshold=3.0, concurrent_samples=1, costs={"driver_step_s": 0.0}
    )
    found = simulate(calibration, seeds=(0,), versions=4)
    assert marks(calibration) == pytest.approx([0, 8, 13, 18, 23])
    assert found.trainer_wait_share.value == pytest.approx(0.0)
    assert found.trainer_idle_ratio.value == pytest.approx(1 / 5)


def test_finished_tasks_count_until_they_are_taken_off():
    # verl counts a sample that is queued and whose task was not reaped twice.
    calibration = world(staleness_threshold=3.0, concurrent_samples=8, mini_batch=2)
    rollouter = Rollouter(calibration)
    rollouter.process()
    assert rollouter.active_tasks == rollouter.max_required == 8
    calibration.run_for(5.0)
    assert (len(rollouter.queue), rollouter.generating, rollouter.active_tasks) == (8, 0, 0)


def test_a_rollouter_below_its_limits_keeps_finished_tasks():
    calibration = world(lengths=(4,), staleness_threshold=9.0, concurrent_samples=4, mini_batch=2)
    rollouter = Rollouter(calibration, max_samples=3)
    rollouter.process()
    calibration.run_for(5.0)
    assert (len(rollouter.queue), rollouter.generating, rollouter.active_tasks) == (3, 0, 3)
    rollouter.reset_staleness()
    assert rollouter.staleness_samples == 6  # three in the queue, three not taken off


def test_a_pause_whose_reason_is_gone_ends_when_the_monitor_looks():
    calibration = world(staleness_threshold=0.0, mini_batch=2, costs={"monitor_s": 10.0})
    rollouter = Rollouter(calibration)
    rollouter.process()
    calibration.run_for(4.0)
    assert rollouter.paused
    rollouter.queue.clear()
    rollouter.staleness_samples = 0
    calibration.run_for(5.9)
    assert rollouter.generating == 0
    calibration.run_for(0.2)
    assert rollouter.generating == 2


def test_a_lost_resume_lasts_until_the_monitor_looks():
    calibration = job(costs={"lost_resume_share": 1.0, "monitor_s": 10.0})
    # The sync at 8 is lost; the monitor looks at 10; two are made 10-14, trained 14-17.
    assert marks(calibration, 2) == pytest.approx([0, 8, 18])


def test_a_validation_holds_up_what_completes_meanwhile():
    # Sync at 8, two samples 8-12 unnoticed, validation 8-18: they are trained from 18 on.
    calibration = job(validation=(10,), validation_interval=1)
    assert marks(calibration, 2) == pytest.approx([0, 8, 18 + 3 + 1])
    found = simulate(calibration, seeds=(0,), versions=4)
    assert found.trainer_wait_share.value == pytest.approx(0.0)


def test_a_trainer_side_validation_aborts_what_runs_and_gives_the_devices_back():
    calibration = job(validation=(10,), validation_interval=2, trainer_validates=True)
    run = FullyAsync(World(calibration, calibration.knobs, seed=0))
    account = run.run(4)
    assert run.world.replicas.routed == run.world.standalone
    assert account.states["validate"] == pytest.approx(2 * 10, abs=2.5)
    assert simulate(calibration, seeds=(0,), versions=4).aborted_per_sample.value > 0


def test_without_partial_rollout_a_sync_truncates():
    settings = {"staleness_threshold": 1.0, "lengths": (8,), "mini_batch": 1, "token_s": 0.7}
    whole = simulate(job(**settings), seeds=(0,), versions=6)
    cut = simulate(job(**settings, partial_rollout=False), seeds=(0,), versions=6)
    tokens = {
        name: found.tokens_per_s.value / found.samples_per_s.value
        for name, found in (("whole", whole), ("cut", cut))
    }
    assert tokens["whole"] == pytest.approx(8.0)
    assert tokens["cut"] < 8.0


def test_a_trainer_that_nobody_feeds_is_told():
    run = FullyAsync(world(mini_batch=2), max_samples=3)
    with pytest.raises(RlinsightError, match="stands still"):
        run.run(4)
