"""The time between start and end of a run: follow it, report stalls, stop it when told to."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from rlinsight.runs.deaths import Death, DeathWatch
from rlinsight.runs.interrupts import Interrupts
from rlinsight.runs.live import LiveTrace
from rlinsight.runs.live_state import LiveState
from rlinsight.runs.processes import Process
from rlinsight.runs.ray_log import dead_actors
from rlinsight.runs.stall import StallWatch, explanation

_POLL_S: Final = 0.5
#: How exactly it is known who died first; asking whether a pid lives costs next to nothing.
_DEATH_POLL_S: Final = 0.1
_CHILDREN_EVERY_S: Final = 3.0
#: Ray stops its workers for up to ten seconds, and vLLM its engine for some more.
GRACE_S: Final = 20.0
#: The exit code of a run that was given up: nobody says how it ended, or that it did.
_GIVEN_UP: Final = 1


class Running(Protocol):
    """What was started: a process of this machine, or a Ray job."""

    console: Path

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C does."""

    def stop(self, *, grace_s: float, in_a_hurry: Callable[[], bool]) -> None:
        """End it and all it started, with force after `grace_s` seconds or when in a hurry."""

    def rest(self) -> set[Process]:
        """Return its processes on this machine."""


class Display(Protocol):
    """Where progress is shown."""

    def update(self, state: LiveState) -> None:
        """Show the state; called twice a second."""

    def say(self, lines: list[str]) -> None:
        """Show lines that must not be missed."""


@dataclass
class Outcome:
    """How a run ended. `exit_code` is the training's own; killed by signal n is -n.

    `steps` is the last one that was logged, `planned_steps` what was asked for; None unknown.
    """

    exit_code: int = 0
    wall_s: float = 0.0
    steps: int | None = None
    planned_steps: int | None = None
    interrupted_by: signal.Signals | None = None
    stalled: bool = False
    deaths: list[Death] = field(default_factory=list)
    explanation: list[str] = field(default_factory=list)

    @property
    def is_short(self) -> bool:
        """Whether fewer steps were logged than planned."""
        return self.planned_steps is not None and (self.steps or 0) < self.planned_steps

    @property
    def is_broken(self) -> bool:
        """Whether it died and says it ended well: verl's rollouter hides its own failure."""
        return self.exit_code == 0 and self.is_short and bool(self.deaths)

    def sentence(self) -> str:
        """Say in a few words how the run ended."""
        if self.interrupted_by is not None:
            return f"stopped by {self.interrupted_by.name}"
        if self.stalled:
            return "ended because it made no progress"
        if self.is_broken:
            return f"broke off at step {self.steps or 0} of {self.planned_steps}"
        if self.exit_code == 0:
            return "finished"
        if self.exit_code < 0:
            return f"killed by {_signal_name(-self.exit_code)}"
        return f"failed with exit code {self.exit_code}"

    @property
    def command_exit_code(self) -> int:
        """The exit code of `rlinsight run`: the training's, as a shell would report it.

        1 where the training made no progress, or lost a process and calls that success.
        """
        if self.interrupted_by is not None:
            return 128 + self.interrupted_by
        if self.stalled or self.is_broken:
            return 1
        return 128 - self.exit_code if self.exit_code < 0 else self.exit_code


@dataclass
class Supervisor:
    """Watches one run until nothing of it is left."""

    running: Running
    live: LiveTrace
    display: Display
    stall_report_s: float
    stall_timeout_s: float | None = None
    grace_s: float = GRACE_S
    planned_steps: int | None = None

    def __post_init__(self) -> None:
        self._stall = StallWatch(self.running.console)
        self._deaths = DeathWatch()
        self._looked_at_children = 0.0

    def watch(self, interrupts: Interrupts) -> Outcome:
        """Return when the run has ended, by itself or because it was told to."""
        began, outcome = time.monotonic(), Outcome(planned_steps=self.planned_steps)
        while (code := self.running.poll()) is None:
            self._look()
            if interrupts.count:
                outcome.interrupted_by = interrupts.first
                code = self._end(interrupts)
                break
            if self._has_stalled():
                outcome.stalled = True
                outcome.explanation = self._explanation()
                code = self._end(interrupts)
                break
            self._wait(interrupts)
        outcome.exit_code = code
        ended_ns = time.time_ns()
        self._clear_away(interrupts)
        self.live.poll()
        outcome.steps = self.live.state.step
        if code != 0 or outcome.stalled or outcome.is_short:
            accused = dead_actors(self.running.console)
            outcome.deaths = self._deaths.cause(accused, self.live.state, ended_ns)
        outcome.wall_s = time.monotonic() - began
        return outcome

    def _wait(self, interrupts: Interrupts) -> None:
        """Sleep until the next look, but notice deaths, signals and the end sooner."""
        until = time.monotonic() + _POLL_S
        while time.monotonic() < until and not interrupts.count and self.running.poll() is None:
            self._deaths.look(self.live.state)
            interrupts.wait(_DEATH_POLL_S)

    def _look(self) -> None:
        self._stall.note(self.live.poll())
        state = self.live.state
        if time.monotonic() - self._looked_at_children >= _CHILDREN_EVERY_S:
            self._looked_at_children = time.monotonic()
            self._deaths.look_at_children(self.running.rest(), state)
        # A reader of our output that has gone away must not take the training with it.
        with suppress(OSError):
            self._tell(state)

    def _tell(self, state: LiveState) -> None:
        self.display.update(state)
        now_ns = state.clock.now_ns()
        if new := self._deaths.news(state):
            self.display.say([death.sentence(state.last_events, now_ns) for death in new])
        if self._stall.quiet_s() >= self.stall_report_s and not self._stall.is_reported:
            self._stall.is_reported = True
            self.display.say(self._explanation())

    def _has_stalled(self) -> bool:
        limit_s = self.stall_timeout_s
        return limit_s is not None and self._stall.quiet_s() >= limit_s

    def _explanation(self) -> list[str]:
        state = self.live.state
        return explanation(self._stall.quiet_s(), state.last_events, state.clock.now_ns())

    def _end(self, interrupts: Interrupts) -> int:
        """Ask the run to end, insist on the second signal; return the exit code.

        A run that cannot even be asked whether it has ended (its cluster is gone, its process
        waits for a disk that is) is given up: on the third signal, or after a while.
        """
        asked, before = time.monotonic(), interrupts.count
        self._say(f"stopping the run (up to {self.grace_s:.0f} s); interrupt again to kill it")
        self.running.interrupt()
        while (code := self.running.poll()) is None:
            if interrupts.count > before or time.monotonic() - asked >= self.grace_s:
                return self._insist(interrupts, before)
            interrupts.wait(_POLL_S / 5)
        return code

    def _insist(self, interrupts: Interrupts, before: int) -> int:
        """End the run by force; return its exit code, `_GIVEN_UP` if none comes."""
        self._stop(self.grace_s / 2, interrupts, before)
        deadline, insisted = time.monotonic() + self.grace_s / 2, interrupts.count
        while (code := self.running.poll()) is None:
            if time.monotonic() >= deadline or interrupts.count > insisted:
                self._say("no answer whether the run has ended; parts of it may still be running")
                return _GIVEN_UP
            interrupts.wait(_POLL_S / 5)
        return code

    def _say(self, line: str) -> None:
        """Show a line, if it can be shown: neither a full disk nor a closed pipe ends the run."""
        with suppress(OSError):
            self.display.say([line])

    def _clear_away(self, interrupts: Interrupts) -> None:
        """Wait for what the run leaves behind, Ray's daemons above all, then end it."""
        deadline, before = time.monotonic() + self.grace_s / 2, max(interrupts.count, 1)
        while self.running.rest() and time.monotonic() < deadline:
            if interrupts.count > before:
                break
            interrupts.wait(_POLL_S / 5)
        self._stop(self.grace_s / 4, interrupts, before)

    def _stop(self, grace_s: float, interrupts: Interrupts, before: int) -> None:
        self.running.stop(grace_s=grace_s, in_a_hurry=lambda: interrupts.count > before)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
