"""The model against verl's real control plane, which ran on replicas and trainers that take time.

Rollouter, trainer, message queue, replay buffer and load balancer of verl 0.9.1 were real; a
response of log-normal length (median 1000, sigma 0.8, at most 4096 tokens) took 10 ms + 0.4 ms per
running response a token, an update 1 s + 30 us a token, a sync 2 s. 16 prompts of 4 responses an
update, 4 updates a version, one trainer. Nothing is calibrated here: the same constants go in.
The real control plane also needs time for itself, 2 to 5 % at the time scale of those runs, which
the model is not told; so recorded versions are the longer ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import job

from rlinsight.analyzers.simulate import Calibration, simulate
from rlinsight.analyzers.simulate.lengths import LengthModel

#: (replicas, staleness, seconds per version, share of time the trainer waits)
FULLY_ASYNC = [
    (2, 0.0, 147.5, 0.866),
    (4, 0.0, 84.4, 0.762),
    (8, 0.0, 68.9, 0.719),
    (16, 0.0, 61.0, 0.683),
    (2, 0.5, 119.9, 0.833),
    (4, 0.5, 69.1, 0.715),
    (8, 0.5, 49.6, 0.609),
    (16, 0.5, 40.5, 0.523),
]
SEPARATE_ASYNC = (57.7, 0.654)
PROMPTS, RESPONSES = 64, 4


def emulated(mode: str, **knobs) -> Calibration:
    rng = np.random.default_rng(0)
    drawn = np.clip(rng.lognormal(np.log(1000), 0.8, (2000, RESPONSES)), 1, 4096).astype(int)
    calibration = job(
        mode, group_size=RESPONSES, mini_batch=PROMPTS // 4, sync_step=4, max_num_seqs=64,
        max_response_length=4096, token_s=0.01, per_running_s=4e-4, train_s=1.0,
        costs={"sync_s": 2.0}, **knobs,
    )  # fmt: skip
    lengths = LengthModel(tuple(map(tuple, drawn.tolist())), 4096)
    training = replace(calibration.training, per_token_s=3e-5)
    return replace(calibration, lengths=lengths, training=training, prompt_tokens=400.0)


def version_s(calibration: Calibration) -> tuple[float, float]:
    found = simulate(calibration, seeds=range(3), versions=12)
    return PROMPTS * RESPONSES / found.samples_per_s.value, found.trainer_wait_share.value


@pytest.mark.parametrize(("replicas", "staleness", "recorded_s", "waits"), FULLY_ASYNC)
def test_fully_async_takes_as_long_as_the_real_scheduler(replicas, staleness, recorded_s, waits):
    seconds, share = version_s(
        emulated("fully_async", rollout_devices=replicas, staleness_threshold=staleness)
    )
    assert -0.1 < seconds / recorded_s - 1 < 0.03
    assert share == pytest.approx(waits, abs=0.05)


def test_separate_async_takes_as_long_as_the_real_scheduler():
    calibration = emulated("separate_async", rollout_devices=4, train_batch=PROMPTS)
    seconds, share = version_s(calibration)
    assert -0.1 < seconds / SEPARATE_ASYNC[0] - 1 < 0.03
    assert share == pytest.approx(SEPARATE_ASYNC[1], abs=0.05)


def test_the_order_of_settings_is_predicted():
    predicted = [
        version_s(emulated("fully_async", rollout_devices=r, staleness_threshold=s))[0]
        for r, s, _, _ in FULLY_ASYNC
    ]
    recorded = [seconds for _, _, seconds, _ in FULLY_ASYNC]
    for i, slower in enumerate(recorded):
        for j, faster in enumerate(recorded):
            if slower > 1.05 * faster:
                assert predicted[i] > predicted[j], (FULLY_ASYNC[i], FULLY_ASYNC[j])
