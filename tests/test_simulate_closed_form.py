"""The mean lag by simulation and in closed form: the published setting, and verl's."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from simulated import job

from rlinsight.analyzers.simulate import simulate
from rlinsight.analyzers.simulate.closed_form import published_lag
from rlinsight.analyzers.simulate.lengths import LengthModel
from rlinsight.analyzers.simulate.world import World

LENGTHS = (20, 60, 100, 140, 200, 300, 450)
TOKEN_S = 0.01


# ---- the form itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "b", "q", "rho", "tail", "measured"),
    [
        (120, 240, 2, 0.63, 1.42, 1.26),
        (240, 120, 2, 0.92, 1.43, 3.59),
        (128, 128, 2, 1.07, 1.44, 3.09),
        (240, 120, 1, 0.86, 1.42, 3.40),
        (120, 120, 1, 0.67, 1.42, 1.92),
        (128, 128, 1, 1.14, 1.45, 2.01),
    ],
)
def test_the_runs_measured_in_the_publication_are_met(c, b, q, rho, tail, measured):
    # Training runs of Qwen3-8B; the publication itself is up to 0.27 versions off.
    assert published_lag(c * tail, b, rho, q) == pytest.approx(measured, abs=0.31)


def test_the_worked_examples():
    assert published_lag(120 * 1.42, 240, 0.63, 2) == pytest.approx(1.34)
    assert published_lag(128 * 1.44, 128, 1.07, 2) == pytest.approx(3.25, abs=0.005)


def test_lag_peaks_where_both_sides_are_busy():
    found = [published_lag(64, 64, rho, 1) for rho in (0.5, 0.99, 1.01, 2.0)]
    assert max(found) in found[1:3]


# ---- the published setting, on the simulator's replicas and clock --------------------------


class QueueDrop:
    """Rollouts that never pause, a queue that drops its oldest, versions that take no time."""

    def __init__(self, world: World, in_flight: int, batch: int, queue: int) -> None:
        self.world, self.batch = world, batch
        self.queue: deque[int] = deque(maxlen=queue)  # a full one drops its oldest
        self.lags: list[int] = []
        world.on_group = self._on_group
        for _ in range(in_flight):
            world.submit_group()

    def _on_group(self, group: int) -> None:
        self.queue.append(group)
        self.world.submit_group()

    def train(self, train_s: float, versions: int, warm_up: int) -> float:
        """Return the mean lag after `warm_up` versions."""
        for version in range(versions):
            self.world.wait(lambda: len(self.queue) >= self.batch)
            taken = [self.queue.popleft() for _ in range(self.batch)]
            if version >= warm_up:
                self.lags += [version - self.world.version_of[group] for group in taken]
            self.world.run_for(train_s)
            self.world.version = version + 1
        return float(np.mean(self.lags))


@settings(max_examples=40)
@given(
    st.integers(32, 96), st.floats(0.3, 3.0), st.floats(0.3, 3.0), st.integers(1, 3),
    st.integers(1, 4),
)  # fmt: skip
def test_replicas_and_clock_agree_with_the_published_form(batch, ahead, utilization, queue, size):
    assume(not 0.9 < utilization < 1.1)  # the form has a step at 1, chance smooths it
    in_flight = round(ahead * batch)
    calibration = job(group_size=size, lengths=LENGTHS, token_s=TOKEN_S, max_num_seqs=4096)
    world = World(calibration, calibration.knobs, seed=0)
    drawn = calibration.lengths.draw(np.random.default_rng(1), 4000, size)
    per_s = in_flight / (float(drawn.max(axis=1).mean()) * TOKEN_S)
    run = QueueDrop(world, in_flight, batch, queue * batch)
    lag = run.train(utilization * batch / per_s, versions=80, warm_up=20)
    # Versions are whole: with few prompts in flight all lags are alike, a quarter off at most.
    assert lag == pytest.approx(
        published_lag(in_flight, batch, utilization, queue), rel=0.05, abs=0.3
    )


def test_responses_in_flight_times_the_tail_are_the_prompts_in_flight():
    # 64 prompts of 4 in flight: those responses that still run are 64 x 4 / M_tail.
    groups = ((20, 60, 100, 300), (10, 40, 200, 450), (30, 30, 90, 120))
    calibration = job(group_size=4, token_s=TOKEN_S, max_num_seqs=4096)
    lengths = LengthModel(groups, 1000)
    world = World(replace(calibration, lengths=lengths), calibration.knobs, seed=0)
    QueueDrop(world, 64, 10**9, 64)
    world.run_for(50.0)
    seen = []
    for _ in range(400):
        world.run_for(0.5)
        seen.append(world.replicas.running())
    drawn = lengths.draw(np.random.default_rng(0), 2000, 4)
    tail = drawn.max(axis=1).mean() / drawn.mean()
    assert np.mean(seen) / 4 * tail == pytest.approx(64, rel=0.05)


# ---- verl's scheduling ---------------------------------------------------------------------


@settings(max_examples=25)
@given(st.integers(4, 24), st.floats(0.3, 2.5), st.floats(0.1, 0.85), st.integers(1, 4))
def test_fully_async_agrees_where_the_published_assumptions_hold(per, ahead, utilization, size):
    # One update a version, weights in no time, a quota that never binds.
    replicas = 4
    in_flight = per * replicas
    batch = max(8, round(in_flight / ahead))
    drawn = job(lengths=LENGTHS).lengths.draw(np.random.default_rng(1), 4000, size)
    per_s = in_flight / (float(drawn.max(axis=1).mean()) * TOKEN_S)
    calibration = job(
        rollout_devices=replicas, group_size=size, mini_batch=batch, concurrent_samples=per,
        staleness_threshold=in_flight / batch + 4, lengths=LENGTHS, token_s=TOKEN_S,
        max_num_seqs=4096, train_s=utilization * batch / per_s,
        costs={"sync_s": 0.0, "resume_s": 0.0},
    )  # fmt: skip
    found = simulate(calibration, seeds=(0, 1), versions=30, warm_up=10)
    check = found.lag_check
    assert check.regime == "rollout-bound"
    assert check.broken == ()
    assert check.expected == check.published
    assert check.simulated == pytest.approx(found.mean_lag_versions.value)
    assert check.difference == pytest.approx(0.0, abs=0.1 + 0.05 * check.published)


#: (updates per version, samples in flight per replica, staleness, seconds per update, regime)
REGIMES = [
    (1, 4, 3.0, 1.0, "rollout-bound"), (1, 4, 3.0, 10.0, "train-bound"),
    (4, 4, 1.0, 1.0, "rollout-bound"), (4, 4, 1.0, 10.0, "train-bound"),
    (4, 16, 3.0, 1.0, "rollout-bound"),
    (1, 16, 0.5, 10.0, "quota-bound"), (4, 32, 1.0, 1.0, "quota-bound"),
    (1, 32, 1.0, 60.0, "train-bound"), (1, 4, 1.0, 60.0, "train-bound"),
    (4, 4, 0.5, 60.0, "train-bound"), (1, 16, 3.0, 60.0, "train-bound"),
]  # fmt: skip


@pytest.mark.parametrize(("updates", "concurrent", "staleness", "train_s", "regime"), REGIMES)
def test_verls_quota_and_updates(updates, concurrent, staleness, train_s, regime):
    calibration = job(
        rollout_devices=4, group_size=4, mini_batch=64 // updates, sync_step=updates,
        concurrent_samples=concurrent, staleness_threshold=staleness, max_num_seqs=256,
        train_s=train_s / updates, costs={"sync_s": 0.1}, lengths=LENGTHS, token_s=TOKEN_S,
    )  # fmt: skip
    check = simulate(calibration, seeds=(0, 1), versions=24, warm_up=10).lag_check
    assert check.regime == regime
    # The form takes arrivals to be even over a version; each sync bunches them.
    assert check.difference == pytest.approx(0.0, abs=0.15)
    assert (check.published is None) == bool(check.broken)
    assert bool(check.broken) == (regime != "rollout-bound" or updates > 1)


def test_no_closed_form_outside_of_fully_async():
    assert simulate(job("sync"), seeds=(0,), versions=4).lag_check is None
