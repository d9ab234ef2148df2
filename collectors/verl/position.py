"""Where this process's trainer stands: step, live parameter version, open phases.

One trainer per process, so the state is the process's. Every function is cheap enough to be
called around each phase.
"""

from __future__ import annotations

import weakref
from typing import Any

#: The lane of the process that drives training.
DRIVER_LANE = "trainer"

_CONTAINERS = frozenset({"step", "init"})


class Position:
    """What the hooks of the driver share.

    `param_version` is the version that the rollouts hold, as passed to the last completed
    weight synchronization; None before the first.
    """

    def __init__(self) -> None:
        self.param_version: int | None = None
        self.phases: list[str] = []
        self._trainer: weakref.ref[Any] | None = None

    def attach(self, trainer: Any) -> None:
        """Make `trainer` the one whose step and version are reported."""
        self._trainer = weakref.ref(trainer)

    @property
    def trainer(self) -> Any:
        """The trainer of this process, None in any other process."""
        return None if self._trainer is None else self._trainer()

    @property
    def is_driver(self) -> bool:
        """Whether this process drives training."""
        return self._trainer is not None

    @property
    def step(self) -> int | None:
        """The trainer's global step."""
        step = getattr(self.trainer, "global_steps", None)
        return None if step is None else int(step)

    @property
    def local_step(self) -> int | None:
        """The update within the current parameter-sync cycle, counted as verl counts it."""
        step = getattr(self.trainer, "local_trigger_step", None)
        return None if step is None else int(step)

    @property
    def in_phase(self) -> bool:
        """Whether a phase other than a container is open."""
        return any(phase not in _CONTAINERS for phase in self.phases)

    def enter(self, phase: str) -> None:
        """Note that `phase` has begun."""
        self.phases.append(phase)

    def leave(self, phase: str) -> None:
        """Note that the innermost `phase` has ended."""
        for index in range(len(self.phases) - 1, -1, -1):
            if self.phases[index] == phase:
                del self.phases[index]
                return


position = Position()
