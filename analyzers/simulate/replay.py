"""The replay buffer of verl's v1 trainers: what may be sampled, and the poll for it.

A prompt carries the global step in which it was submitted. `sample` looks, and while there is
too little, looks again every `poll_s`: waits come in multiples of it. Under `drop`, a finished
prompt whose span (step - its step + 1) exceeds `max_off_policy` is evicted and replaced by a
fresh one; under `wait`, sampling is held up while one in flight has reached it. The oldest
steps are sampled first.
"""

from __future__ import annotations

from rlinsight.analyzers.simulate.account import Account, Doing
from rlinsight.analyzers.simulate.world import World


class ReplayBuffer:
    """Prompts that were submitted; `step` is the trainer's global step."""

    def __init__(self, world: World, account: Account) -> None:
        self.world, self.account = world, account
        self.step = 1
        self.submitted = self.produced = self.dropped = 0
        self._step_of: dict[int, int] = {}
        self._running: set[int] = set()
        self._finished: list[int] = []
        world.on_group = self._on_group

    @property
    def unconsumed(self) -> int:
        """Return the finished prompts that nobody sampled."""
        return len(self._finished)

    @property
    def generating(self) -> int:
        """Return the prompts that are not finished."""
        return len(self._running)

    def submit(self, prompts: int) -> None:
        """Submit prompts of the current step."""
        for _ in range(prompts):
            group = self.world.submit_group()
            self._step_of[group] = self.step
            self._running.add(group)
        self.submitted += prompts

    def sampleable(self, step: int | None = None) -> int:
        """Return how many finished prompts may be sampled in `step`."""
        return len(self._finished) - len(self._stale(self.step if step is None else step))

    def wait_for(self, prompts: int) -> None:
        """Poll until so many may be sampled, evicting and refilling meanwhile."""
        while True:
            stale = self._stale(self.step)
            if stale:
                self._evict(stale)
            elif self._enough(prompts):
                return
            else:
                self.world.run_for(self.world.cost("poll_s"))

    def sample(self, prompts: int) -> list[int]:
        """Wait for so many prompts and take the oldest."""
        with Doing(self.account, "wait"):
            self.wait_for(prompts)
        self._finished.sort(key=lambda group: self._step_of[group])
        taken, self._finished = self._finished[:prompts], self._finished[prompts:]
        for group in taken:
            del self._step_of[group]
        return taken

    def _on_group(self, group: int) -> None:
        self._running.remove(group)
        self._finished.append(group)
        self.produced += 1

    def _enough(self, prompts: int) -> bool:
        limit = self.world.knobs.max_off_policy
        if limit is not None and self.world.knobs.off_policy_strategy == "wait":
            oldest = min((self._step_of[group] for group in self._running), default=self.step)
            if self.step - oldest + 1 >= limit:
                return False
        return len(self._finished) >= prompts

    def _stale(self, step: int) -> list[int]:
        limit = self.world.knobs.max_off_policy
        if limit is None or self.world.knobs.off_policy_strategy != "drop":
            return []
        return [group for group in self._finished if step - self._step_of[group] + 1 > limit]

    def _evict(self, stale: list[int]) -> None:
        gone = set(stale)
        self._finished = [group for group in self._finished if group not in gone]
        for group in stale:
            self.account.dropped_tokens += self.world.tokens.pop(group)
            del self._step_of[group], self.world.version_of[group]
        self.dropped += len(stale)
        self.submit(len(stale))
