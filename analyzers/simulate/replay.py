"""The replay buffer of verl's v1 trainers: what may be sampled, and the poll for it.

A prompt carries the global step in which it was submitted. `sample` looks, and while there is
too little, looks again every `poll_s`: waits come in multiples of it. Under `drop`, a finished
prompt whose span (step - its step + 1) exceeds `max_off_policy` is evicted and replaced by a
fresh one; under `wait`, sampling is held up while one in flight has reached it. The oldest
steps are sampled first.
"""

from __future__ import annotations

from collections import Counter, deque

from rlinsight.analyzers.simulate.account import Account, Doing
from rlinsight.analyzers.simulate.world import HANGS, World
from rlinsight.errors import RlinsightError


class ReplayBuffer:
    """Prompts that were submitted; `step` is the trainer's global step."""

    def __init__(self, world: World, account: Account) -> None:
        self.world, self.account = world, account
        self.step = 1
        self.submitted = self.produced = self.dropped = 0
        self._step_of: dict[int, int] = {}
        # By the step of their submission: a poll costs as much as there are steps, not prompts.
        self._running: Counter[int] = Counter()
        self._finished: dict[int, deque[int]] = {}
        world.on_group = self._on_group

    @property
    def unconsumed(self) -> int:
        """Return the finished prompts that nobody sampled."""
        return sum(map(len, self._finished.values()))

    @property
    def generating(self) -> int:
        """Return the prompts that are not finished."""
        return self._running.total()

    def submit(self, prompts: int) -> None:
        """Submit prompts of the current step."""
        for _ in range(prompts):
            group = self.world.submit_group()
            self._step_of[group] = self.step
        if prompts:
            self._running[self.step] += prompts
        self.submitted += prompts

    def sampleable(self, step: int | None = None) -> int:
        """Return how many finished prompts may be sampled in `step`."""
        stale = self._stale(self.step if step is None else step)
        return self.unconsumed - sum(len(self._finished[old]) for old in stale)

    def wait_for(self, prompts: int) -> None:
        """Poll until so many may be sampled, evicting and refilling meanwhile.

        Raises RlinsightError where they never can.
        """
        while True:
            stale = self._stale(self.step)
            if stale:
                self._evict(stale)
            elif self._enough(prompts):
                return
            elif not self.generating:
                raise RlinsightError(HANGS)
            else:
                self.world.run_for(self.world.cost("poll_s"))

    def sample(self, prompts: int) -> list[int]:
        """Wait for so many prompts and take the oldest."""
        with Doing(self.account, "wait"):
            self.wait_for(prompts)
        taken: list[int] = []
        for step in sorted(self._finished):
            groups = self._finished[step]
            taken += [groups.popleft() for _ in range(min(len(groups), prompts - len(taken)))]
            if not groups:
                del self._finished[step]
        for group in taken:
            del self._step_of[group]
        return taken

    def _on_group(self, group: int) -> None:
        step = self._step_of[group]
        self._running[step] -= 1
        if not self._running[step]:
            del self._running[step]
        self._finished.setdefault(step, deque()).append(group)
        self.produced += 1

    def _enough(self, prompts: int) -> bool:
        limit = self.world.knobs.max_off_policy
        if limit is None or self.world.knobs.off_policy_strategy != "wait":
            return self.unconsumed >= prompts
        if any(self.step - step + 1 >= limit for step in self._running):
            return False
        return self.unconsumed >= prompts

    def _stale(self, step: int) -> list[int]:
        """Return the steps whose finished prompts are too old to be sampled in `step`."""
        limit = self.world.knobs.max_off_policy
        if limit is None or self.world.knobs.off_policy_strategy != "drop":
            return []
        return [old for old in self._finished if step - old + 1 > limit]

    def _evict(self, stale: list[int]) -> None:
        gone = [group for step in stale for group in self._finished.pop(step)]
        for group in gone:
            self.account.dropped_tokens += self.world.tokens.pop(group)
            del self._step_of[group], self.world.version_of[group]
        self.dropped += len(gone)
        self.submit(len(gone))
