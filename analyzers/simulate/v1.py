"""verl's v1 trainers: the loop of `PPOTrainer.fit`, and what sync and colocate_async add.

A global step submits one train batch, then `sync_step` times samples a mini-batch and trains
on it, saves a checkpoint when it is due, synchronizes the weights, and validates. What differs
between the modes is what happens around sampling and at the step's end.
"""

from __future__ import annotations

from math import floor

from rlinsight.analyzers.simulate.account import Account, Doing
from rlinsight.analyzers.simulate.replay import ReplayBuffer
from rlinsight.analyzers.simulate.world import World


class Trainer:
    """A v1 run; the base is the loop, the hooks are the modes."""

    def __init__(self, world: World) -> None:
        self.world, self.account = world, Account(world)
        self.buffer = ReplayBuffer(world, self.account)

    def run(self, versions: int) -> Account:
        """Train until `versions` versions have gone live: one a step."""
        self.on_train_begin()
        self.account.mark()
        for step in range(1, versions + 1):
            self.buffer.step = step
            self._step()
        return self.account

    def on_train_begin(self) -> None:
        """Before the first step."""

    def on_step_begin(self) -> None:
        """Before a step's prompts are submitted."""

    def prepare_step(self) -> None:
        """Submit the step's prompts."""
        with Doing(self.account, "driver"):
            self.buffer.submit(self.world.knobs.train_batch)
            self.world.run_for(self.world.cost("dispatch_s"))

    def on_sample_end(self) -> None:
        """After a mini-batch was sampled."""

    def on_step_end(self) -> None:
        """At the end of a step: the weights go to the replicas."""
        raise NotImplementedError

    def on_validate_begin(self) -> None:
        """Before a validation."""

    def went_live(self) -> None:
        """Count a new version."""
        self.world.version += 1
        self.account.mark()

    def warm_up(self, batches: float) -> None:
        """Submit the warm-up batches."""
        self.buffer.submit(floor(batches) * self.world.knobs.train_batch)

    def _step(self) -> None:
        knobs, world, account = self.world.knobs, self.world, self.account
        start = world.now
        self.on_step_begin()
        self.prepare_step()
        for _ in range(knobs.sync_step):
            self._update()
        if knobs.checkpoint_interval and self.buffer.step % knobs.checkpoint_interval == 0:
            with Doing(account, "checkpoint"):
                world.run_for(world.cost("checkpoint_s"))
        self.on_step_end()
        account.steps.append((start, world.now - start))
        if world.work.validates(self.buffer.step):
            with Doing(account, "validate"):
                self._validate()
        with Doing(account, "driver"):
            world.run_for(world.cost("driver_step_s"))

    def _update(self) -> None:
        world = self.world
        groups = self.sample()
        self.on_sample_end()
        with Doing(self.account, "driver"):
            world.run_for(world.cost("driver_update_s"))
        tokens = self.account.trained(groups, world.version)
        with Doing(self.account, "train"):
            world.run_for(world.work.update_seconds(tokens))

    def sample(self) -> list[int]:
        """Wait for a mini-batch and take it."""
        return self.buffer.sample(self.world.knobs.update_prompts)

    def _validate(self) -> None:
        world = self.world
        self.on_validate_begin()
        world.run_for(world.cost("validation_before_s"))
        asked = world.submit_validation()
        while not world.validation_done(asked):
            world.run_for(world.cost("poll_s"))
        with Doing(self.account, None, rollout_too=True):
            world.run_for(world.cost("validation_rest_s"))
        world.run_for(world.cost("validation_after_s"))

    def sync_hybrid(self, replicas: list[int]) -> None:
        """Give hybrid replicas the weights and let them generate."""
        with Doing(self.account, "sync"):
            self.world.run_for(self.world.cost("sync_s"))
        self.world.open(replicas)


class Sync(Trainer):
    """Trainer and replicas take turns: a batch is generated, the replicas sleep, it is trained."""

    def on_sample_end(self) -> None:
        with Doing(self.account, "switch"):
            self.world.run_for(self.world.cost("switch_to_trainer_s"))

    def on_step_end(self) -> None:
        self.sync_hybrid(self.world.hybrid)
        self.went_live()


class ColocateAsync(Trainer):
    """As sync, but batches are submitted ahead, and what runs is aborted for the training."""

    def on_train_begin(self) -> None:
        self.warm_up(self.world.knobs.warm_up_batches)

    def on_sample_end(self) -> None:
        with Doing(self.account, "switch"):
            self.world.abort(self.world.hybrid)
            self.world.run_for(self.world.cost("switch_to_trainer_s"))

    def on_step_end(self) -> None:
        self.sync_hybrid(self.world.hybrid)
        self.went_live()
