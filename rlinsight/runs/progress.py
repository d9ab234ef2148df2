"""What the user sees while a run goes on: one live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import codecs
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlinsight.report.units import counted
from rlinsight.runs.live_state import LiveState

#: In plain output, the start-up phase says this often that it is still alive.
_STARTUP_LINE_EVERY_S: Final = 15.0


class Progress:
    """Shows a `LiveState`. `total_steps` is None when it is not known, and then there is no ETA."""

    def __init__(self, console: Console, *, total_steps: int | None, console_log: Path) -> None:
        self._console = console
        self._total = total_steps
        self._console_log = console_log
        self._began = time.monotonic()
        self._live: Live | None = None
        self._shown_step: int | None = None
        self._shown_lanes: set[str] = set()
        self._last_startup_line = 0.0

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            with suppress(OSError):  # nowhere to show it is no reason to lose the run's result
                self._live.stop()

    def update(self, state: LiveState) -> None:
        """Show the state."""
        if self._live is not None:
            self._live.update(self._table(state))
        elif state.step is None:
            self._startup_line(state)
        elif state.step != self._shown_step:
            self._shown_step = state.step
            self._console.print(Text(", ".join(self._figures(state))), soft_wrap=True)

    def say(self, lines: list[str]) -> None:
        """Show lines that stay, above the live line."""
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)

    def _startup_line(self, state: LiveState) -> None:
        lanes = _lanes(state)
        waited = time.monotonic() - self._last_startup_line
        if lanes <= self._shown_lanes and waited < _STARTUP_LINE_EVERY_S:
            return
        self._shown_lanes |= lanes
        self._last_startup_line = time.monotonic()
        self._console.print(Text(self._startup(state)), soft_wrap=True)

    def _startup(self, state: LiveState) -> str:
        seconds = time.monotonic() - self._began
        lanes = sorted(_lanes(state))
        if not lanes:
            output = f"output in {self._console_log}"
            return f"starting for {seconds:.0f} s: no process records yet; {output}"
        phase = "first step" if state.first_step_ns else "starting"
        return f"{phase} for {seconds:.0f} s: {counted(len(lanes), 'lane')}: {_shortened(lanes)}"

    def _figures(self, state: LiveState) -> list[str]:
        """Return the parts of the line, each with its unit."""
        now_ns = state.clock.now_ns()
        total = "" if self._total is None else f"/{self._total}"
        parts = [
            f"step {state.step}{total}",
            _given("{:.0f} tokens/s per device", state.tokens_per_s_per_device),
            _given("trainer idle {:.0%}", state.trainer_idle(now_ns)),
            _given("rollout idle {:.0%}", state.rollout_idle(now_ns)),
            _given("queue {}", state.queue_depth),
            self._eta(state),
        ]
        return [part for part in parts if part]

    def _eta(self, state: LiveState) -> str:
        per_step = state.seconds_per_step()
        if per_step is None or self._total is None or state.step is None:
            return ""
        return f"ETA {duration(per_step * (self._total - state.step))}"

    def _table(self, state: LiveState) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        if state.step is None:
            grid.add_row(Text(self._startup(state), style="cyan"))
            return grid
        grid.add_row(*(Text(part) for part in self._figures(state)))
        return grid


class Echo:
    """For a wrapped command: its own output, as it would appear without us."""

    def __init__(self, console: Console, console_log: Path) -> None:
        self._console = console
        self._log = console_log.open("rb")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def __enter__(self) -> Echo:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # nowhere to show it is no reason to lose the run's result
            self._copy()
        self._log.close()

    def update(self, _state: LiveState) -> None:
        """Copy what the command has printed since the last call."""
        self._copy()

    def say(self, lines: list[str]) -> None:
        """Show lines of ours, told apart by their beginning."""
        for line in lines:
            self._console.print(Text(f"rlinsight: {line}"), soft_wrap=True)

    def _copy(self) -> None:
        text = self._decoder.decode(self._log.read())
        if text:
            self._console.file.write(text)
            self._console.file.flush()


def duration(seconds: float) -> str:
    """Return a duration in the two largest units, such as `2 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _given(form: str, value: float | None) -> str:
    return "" if value is None else form.format(value)


def _lanes(state: LiveState) -> set[str]:
    return {lane.id for lane in state.topology.lanes} | set(state.last_events)


def _shortened(names: list[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
