"""The rollouter of fully_async: `FullyAsyncRollouter` and the message queue of verl 0.9.1.

Prompts are called samples there. The control flow, from `_processor_worker`:

* before each sample: pause if `staleness_samples` has reached `max_required_samples`, or if the
  queue is full. A paused rollouter drains: what runs is finished, nothing is added.
* then `staleness_samples += 1`, and if `max_concurrent_samples` tasks are active, wait for one
  to finish *with the lock held*: a parameter sync that ends meanwhile waits for that task too.
* finished tasks are only taken off the active ones in such a wait, or while draining.
* `reset_staleness`, after each sync, sets `staleness_samples` to active tasks + queue, so tasks
  that are finished but not taken off count twice, and wakes a paused rollouter. Now and then
  the old count is read before the new one is set: the resume is lost until the monitor's next
  look, up to 10 s later.
* a validation holds the event loop: nothing is submitted and no completion is noticed until it
  ends, though requests go on being generated.
"""

from __future__ import annotations

from collections import deque

from rlinsight.analyzers.simulate.world import World


class Rollouter:
    """Submits samples as far as the quota allows, and queues them for the trainer."""

    def __init__(self, world: World, max_samples: int | None = None) -> None:
        self.world = world
        self.queue: deque[int] = deque()
        self.produced = self.dropped = self.submitted = 0
        self.dropped_tokens = 0.0
        self.staleness_samples = 0
        self.paused = False
        self.max_required = world.knobs.max_required_samples
        self.max_samples = max_samples
        self.max_concurrent = 0
        self._active = self._finished = 0
        self._holds_sample = False
        self._blocked = self._reset_asked = False
        self._handing_out = False
        self._unnoticed: list[int] = []
        self._handout_s = world.calibration.costs.handout_s
        self.set_servers(len(world.standalone))
        world.on_group = self.on_group
        world.after(world.calibration.costs.monitor_s, self._monitor)

    @property
    def active_tasks(self) -> int:
        """Return the tasks that count as active, finished ones that were not taken off too."""
        return self._active + self._finished

    @property
    def generating(self) -> int:
        """Return the samples that are not finished."""
        return self._active

    @property
    def lock_held(self) -> bool:
        """Whether the processor waits for a task with the lock held."""
        return self._holds_sample and not self._blocked

    def set_servers(self, servers: int) -> None:
        """Follow a change of the number of servers in the balancer."""
        limit = servers * self.world.knobs.concurrent_samples
        self.max_concurrent = min(limit, self.max_required)

    def process(self) -> None:
        """Submit until something makes the processor wait; each prompt takes `handout_s`."""
        while not (self._blocked or self.paused or self._handing_out):
            if not self._holds_sample:
                if self.max_samples is not None and self.submitted >= self.max_samples:
                    return
                if self._should_pause():
                    self.paused = True
                    self._finished = 0  # the drain takes finished tasks off
                    return
                self.staleness_samples += 1
                self._holds_sample = True
            if self.active_tasks >= self.max_concurrent:
                if not self._finished:
                    return
                self._finished = 0
                if self._reset_asked:  # it was first to wait for the lock
                    self._reset()
            self.world.submit_group()
            self.submitted += 1
            self._active += 1
            self._holds_sample = False
            if self._handout_s:
                self._handing_out = True
                self.world.after(self._handout_s, self._handed_out)

    def _handed_out(self) -> None:
        self._handing_out = False
        self.process()

    def on_group(self, group: int) -> None:
        """Notice that a sample is finished: queue it, which drops the oldest of a full queue."""
        if self._blocked:
            self._unnoticed.append(group)
            return
        if len(self.queue) >= self.max_required:
            self.dropped += 1
            self.dropped_tokens += self.world.tokens[self.queue.popleft()]
        self.queue.append(group)
        self.produced += 1
        self._active -= 1
        if not self.paused:
            self._finished += 1
        self.process()

    def reset_staleness(self) -> None:
        """Follow a parameter sync, once the lock is free."""
        if self.lock_held:
            self._reset_asked = True
            self.world.wait(lambda: not self._reset_asked)
        else:
            self._reset()
            self.process()

    def _reset(self) -> None:
        self._reset_asked = False
        was_paused, before = self.paused, self.staleness_samples
        self.staleness_samples = self.active_tasks + len(self.queue)
        self.paused = False
        lost = self.world.luck.random() < self.world.calibration.costs.lost_resume_share
        if lost and was_paused and before >= self.max_required:
            self.paused = True

    def block(self) -> None:
        """A validation takes the event loop."""
        self._blocked = True

    def unblock(self) -> None:
        """The validation has ended: notice what completed meanwhile."""
        self._blocked = False
        unnoticed, self._unnoticed = self._unnoticed, []
        for group in unnoticed:
            self.on_group(group)
        self.process()

    def _should_pause(self) -> bool:
        return len(self.queue) >= self.max_required or self.staleness_samples >= self.max_required

    def _monitor(self) -> None:
        if self.paused and not self._blocked and not self._should_pause():
            self.paused = False
            self.process()
        self.world.after(self.world.calibration.costs.monitor_s, self._monitor)
