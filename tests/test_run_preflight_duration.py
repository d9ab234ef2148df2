"""Preflight: how long a run is."""

from __future__ import annotations

import pytest
from preflight_facts import ACTOR, facts

from rlinsight.runs import preflight
from rlinsight.runs.checks import duration

STEPS, PROMPTS = "trainer.total_training_steps", "rollout.total_rollout_steps"


@pytest.mark.parametrize(
    ("mode", "steps", "key", "fits"),
    [
        ("sync", 5, STEPS, False),
        ("sync", 5, f"+{STEPS}", False),
        ("sync", None, STEPS, True),
        ("sync", 5, PROMPTS, True),
        ("fully_async", 5, PROMPTS, False),
        ("fully_async", 5, "trainer.test_freq", True),
    ],
)
def test_the_length_of_a_run_is_said_once(mode, steps, key, fits):
    found = duration.steps_are_said_once(facts(mode, steps=steps, overrides={key: 7}))
    assert (found is None) is fits
    assert fits or f"`steps` and the override {key.strip('+')} both say" in found.message


@pytest.mark.parametrize(
    ("mode", "prompts", "mini_batch", "batches", "fits"),
    [
        ("fully_async", 100, 256, 1, False),  # verl's defaults
        ("fully_async", 100, 100, 1, True),
        ("fully_async", 100, 64, 2, False),
        ("fully_async", None, 256, 1, True),  # the data set decides
        ("sync", 100, 256, 1, True),
    ],
)
def test_a_run_makes_at_least_one_update(mode, prompts, mini_batch, batches, fits):
    seen = {
        PROMPTS: prompts,
        f"{ACTOR}.ppo_mini_batch_size": mini_batch,
        "async_training.require_batches": batches,
    }
    found = duration.some_update_is_made(facts(mode, settings=seen))
    assert (found is None) is fits
    assert fits or f"waits for {mini_batch * batches} prompts" in found.message


def test_they_are_asked_before_a_run():
    assert set(duration.CHECKS) <= set(preflight.CHECKS)
