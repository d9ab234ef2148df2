"""The trainer of fully_async: `FullyAsyncTrainer.fit_step` of verl 0.9.1, over the rollouter.

An update takes `mini_batch x require_batches` prompts from the queue as they come. After
`sync_step` updates the weights are synchronized: every standalone replica is aborted, takes
the weights, and goes on with what it had (partial rollout) or without; then the rollouter's
staleness count is reset. A validation follows the sync, by the rollouter's replicas alone or
with the trainer's hybrid ones; the trainer waits for it either way.
"""

from __future__ import annotations

from rlinsight.analyzers.simulate.account import Account, Doing
from rlinsight.analyzers.simulate.rollouter import Rollouter
from rlinsight.analyzers.simulate.world import World


class FullyAsync:
    """A fully_async run. `version` counts the syncs of the trainer."""

    def __init__(self, world: World, max_samples: int | None = None) -> None:
        self.world, self.account = world, Account(world)
        self.rollouter = Rollouter(world, max_samples)
        self.version = 0
        # Hybrid replicas sleep until a validation wants them.
        world.replicas.routed = list(world.standalone)

    def run(self, versions: int) -> Account:
        """Train until `versions` versions have gone live."""
        self.rollouter.process()
        self.account.mark()
        while self.version < versions:
            self._version()
        return self.account

    def _version(self) -> None:
        knobs, account, world = self.world.knobs, self.account, self.world
        for local_step in range(1, knobs.sync_step + 1):
            start = world.now
            self._update()
            if local_step == knobs.sync_step:
                self.version += 1
                self._sync()
            account.steps.append((start, world.now - start))
            if local_step == knobs.sync_step:
                self._after_sync()
            with Doing(account, "driver"):
                world.run_for(world.cost("driver_step_s"))

    def _update(self) -> None:
        world, queue = self.world, self.rollouter.queue
        batch: list[int] = []
        with Doing(self.account, "wait"):
            while len(batch) < world.knobs.update_prompts:
                world.wait(lambda: bool(queue))
                batch.append(queue.popleft())
        with Doing(self.account, "driver"):
            world.run_for(world.cost("driver_update_s"))
        tokens = self.account.trained(batch, self.version)
        with Doing(self.account, "train"):
            world.run_for(world.work.update_seconds(tokens))

    def _sync(self) -> None:
        world = self.world
        with Doing(self.account, "sync"):
            self._abort()
            world.run_for(world.cost("sync_s"))
            world.version = self.version
            world.open(world.standalone)
        loading = world.cost("replica_sync_s") * len(world.standalone)
        self.account.standalone_overhead_s += loading
        self.account.dropped_tokens = self.rollouter.dropped_tokens
        self.account.mark()
        with Doing(self.account, "driver"):
            self.rollouter.reset_staleness()

    def _abort(self) -> None:
        """Stop the standalone replicas; without partial rollout, what ran ends here.

        verl then takes the truncated response as it is; its comment speaks of dropping it.
        """
        world = self.world
        if world.knobs.partial_rollout:
            world.abort(world.standalone)
        else:
            world.truncate(world.standalone)

    def _after_sync(self) -> None:
        knobs, world = self.world.knobs, self.world
        if world.work.validates(self.version):
            with Doing(self.account, "validate"):
                self._validate()
        if knobs.checkpoint_interval and self.version % knobs.checkpoint_interval == 0:
            with Doing(self.account, "checkpoint"):
                world.run_for(world.cost("checkpoint_s"))

    def _validate(self) -> None:
        world = self.world
        if world.hybrid:
            self._lend()
        self.rollouter.block()
        world.run_for(world.cost("validation_before_s") + self.account.first_validation_s())
        with Doing(self.account, None, rollout_too=True):
            asked = world.submit_validation()
            world.wait(lambda: world.validation_done(asked))
            world.run_for(world.cost("validation_rest_s"))
        world.run_for(world.cost("validation_after_s"))
        self.rollouter.unblock()
        if world.hybrid:
            self._take_back()
            world.run_for(world.cost("lend_after_s"))

    def _lend(self) -> None:
        """Give the trainer's devices to generation; everything that runs is aborted for it.

        What giving them the weights takes is taken to be that of a sync where it was not recorded.
        """
        world = self.world
        seen = world.calibration.saw("lend_before_s")
        world.run_for(world.cost("lend_before_s" if seen else "sync_s"))
        world.abort(world.standalone)
        world.replicas.routed = world.standalone + world.hybrid
        self.rollouter.set_servers(len(world.replicas.routed))
        world.open(world.replicas.routed)

    def _take_back(self) -> None:
        world = self.world
        world.abort(world.standalone)
        world.replicas.routed = list(world.standalone)
        world.reject(world.hybrid)
        self.rollouter.set_servers(len(world.standalone))
        world.open(world.standalone)
