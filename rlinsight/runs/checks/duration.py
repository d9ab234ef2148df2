"""How long a run is: said once, and long enough to train."""

from __future__ import annotations

from typing import Final

from rlinsight.runs.checks.facts import Check, Facts, Problem
from rlinsight.runs.overrides import split_key
from rlinsight.runs.verl_args import length_key


def steps_are_said_once(facts: Facts) -> Problem | None:
    """`steps` becomes an override; one of the user's own beside it would be lost."""
    config = facts.managed
    key = length_key(config)
    if config.steps is None or key not in {split_key(name)[1] for name in config.overrides}:
        return None
    return Problem(f"`steps` and the override {key} both say how long the run is; leave one out")


def some_update_is_made(facts: Facts) -> Problem | None:
    """In fully_async verl counts prompts; its default of 100 is less than its mini-batch of 256."""
    if facts.managed.mode != "fully_async":
        return None
    prompts = facts.number(length_key(facts.managed))
    mini_batch = facts.number("actor_rollout_ref.actor.ppo_mini_batch_size")
    batches = facts.number("async_training.require_batches")
    if prompts is None or not mini_batch or not batches or prompts >= mini_batch * batches:
        return None
    return Problem(
        f"the trainer waits for {mini_batch * batches} prompts (ppo_mini_batch_size x "
        f"require_batches), and the run ends after {prompts}, so nothing is trained; set `steps`"
    )


CHECKS: Final = (
    Check("steps", steps_are_said_once),
    Check("run length", some_update_is_made),
)
