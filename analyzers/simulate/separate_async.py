"""separate_async: standalone replicas generate all the time, hybrid ones while they are lent.

From `trainer_separate_async.py` of verl 0.9.1. Without the switch, the hybrid replicas only help
a validation and are taken back at the next step's begin. With it, a step's end decides whether
to lend them: where fewer prompts are sampleable than the threshold, and the time that lending
saves (prompts missing x the wait per prompt measured so far x the share of devices gained)
exceeds the measured cost of switching there and back. They are taken back once the threshold is
reached. The threshold adapts: after steps in which the trainer waited longer than a poll it
grows, after calm ones it falls.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from rlinsight.analyzers.simulate.account import Doing
from rlinsight.analyzers.simulate.v1 import Trainer
from rlinsight.analyzers.simulate.world import World

#: Defaults of `HybridRolloutSwitchConfig`.
STEP_UP: Final = 0.05
STEP_DOWN: Final = 0.03
RELEASE_STEPS: Final = 2
COST_WINDOW: Final = 3


class SeparateAsync(Trainer):
    """A separate_async run; `lent` says whether the hybrid replicas generate."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # After initialization the hybrid engine is in rollout mode.
        self.lent = bool(world.hybrid)
        self.switching = world.knobs.hybrid_switch and bool(world.hybrid)
        self.policy = SwitchPolicy(world)
        self._waited_s = 0.0
        self._missing = 0
        self._threshold = 0

    def on_train_begin(self) -> None:
        self.warm_up(self.world.knobs.warm_up_batches)

    def on_step_begin(self) -> None:
        self._waited_s, self._missing = 0.0, 0
        if not self.lent:
            return
        self._threshold = self.policy.threshold()
        if not self.switching or self.buffer.sampleable() >= self._threshold:
            self._take_back()

    def prepare_step(self) -> None:
        super().prepare_step()
        if self.lent:
            with Doing(self.account, "wait"):
                self.buffer.wait_for(self._threshold)
            self._take_back()

    def sample(self) -> list[int]:
        self._missing += max(0, self.world.knobs.update_prompts - self.buffer.sampleable())
        start = self.world.now
        groups = super().sample()
        self._waited_s += self.world.now - start
        return groups

    def on_step_end(self) -> None:
        lend = False
        if self.switching:
            self.policy.observe(self._waited_s, self._missing)
            sampleable = self.buffer.sampleable(self.buffer.step + 1)
            lend = self.policy.should_lend(sampleable)
        world = self.world
        if lend:  # the balancer knows them before they can generate: what comes is parked there
            world.replicas.routed = world.standalone + world.hybrid
        with Doing(self.account, "sync"):
            world.abort(world.standalone, anywhere=lend)
            world.run_for(world.cost("sync_s"))
        world.open(world.standalone)
        self.account.standalone_overhead_s += world.cost("replica_sync_s") * len(world.standalone)
        self.went_live()
        if lend:
            self._lend()

    def on_validate_begin(self) -> None:
        if self.world.hybrid and not self.lent:
            self._lend()

    def _lend(self) -> None:
        """Wake the hybrid replicas with the weights, which takes a sync where it was not seen."""
        world = self.world
        start = world.now
        with Doing(self.account, "switch"):
            seen = world.calibration.saw("switch_to_rollout_s")
            world.run_for(world.cost("switch_to_rollout_s" if seen else "sync_s"))
        world.replicas.routed = world.standalone + world.hybrid
        world.open(world.hybrid)
        self.lent = True
        self.policy.to_rollout_s.append(world.now - start)

    def _take_back(self) -> None:
        world = self.world
        start = world.now
        world.replicas.routed = list(world.standalone)
        with Doing(self.account, "switch"):
            world.reject(world.hybrid)
            world.run_for(world.cost("switch_to_trainer_s"))
        self.lent = False
        self.policy.to_trainer_s.append(world.now - start)


class SwitchPolicy:
    """Decides at a step's end whether lending pays; see the module's docstring."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ratio = world.knobs.switch_threshold
        self._idle_steps = self._calm_steps = 0
        self._waited_s, self._waited_for = 0.0, 0
        self.to_rollout_s: deque[float] = deque(maxlen=COST_WINDOW)
        self.to_trainer_s: deque[float] = deque(maxlen=COST_WINDOW)

    def threshold(self) -> int:
        """Return how many prompts must be sampleable, at least one mini-batch."""
        knobs = self._world.knobs
        target = round(self._ratio * knobs.train_batch)
        return min(max(target, knobs.update_prompts), knobs.train_batch)

    def observe(self, waited_s: float, missing: int) -> None:
        """Take note of a step's wait, and adapt the threshold."""
        if missing > 0 and waited_s > 0:
            self._waited_s += waited_s
            self._waited_for += missing
        if waited_s > self._world.cost("poll_s"):
            self._calm_steps = 0
            self._idle_steps = min(self._idle_steps + 1, RELEASE_STEPS)
            if self._idle_steps == RELEASE_STEPS:
                self._ratio = min(1.0, self._ratio + STEP_UP)
            return
        self._idle_steps = 0
        self._calm_steps = min(self._calm_steps + 1, RELEASE_STEPS)
        if self._calm_steps == RELEASE_STEPS:
            self._ratio = max(1 / self._world.knobs.sync_step, self._ratio - STEP_DOWN)

    def should_lend(self, sampleable: int) -> bool:
        """Whether lending until the threshold is reached saves more than it costs."""
        remaining = self.threshold() - sampleable
        if remaining <= 0:
            return False
        if not (self._waited_for and self.to_rollout_s and self.to_trainer_s):
            return True
        per_sample = self._waited_s / self._waited_for
        standalone = self._world.knobs.rollout_devices
        gained = 1 - standalone / self._world.knobs.devices
        cost = sum(self.to_rollout_s) / len(self.to_rollout_s)
        cost += sum(self.to_trainer_s) / len(self.to_trainer_s)
        return remaining * per_sample * gained > cost
