"""Ending a run that does not answer, and signals that are not meant for us."""

from __future__ import annotations

import errno
import io
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from rlinsight.runs.interrupts import Interrupts
from rlinsight.runs.live import LiveTrace
from rlinsight.runs.progress import Echo
from rlinsight.runs.supervise import Outcome, Supervisor


class Unanswering:
    """A job whose cluster is gone: nobody can say whether it has ended."""

    def __init__(self, folder: Path) -> None:
        self.console = folder / "console.log"
        self.asked: list[str] = []

    def poll(self) -> int | None:
        return None

    def interrupt(self) -> None:
        self.asked.append("interrupt")

    def stop(self, *, grace_s: float, in_a_hurry) -> None:
        self.asked.append("stop")

    def rest(self) -> set:
        return set()


class Full(io.StringIO):
    """A file on a disk without room."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Lines:
    def __init__(self, error: OSError | None = None) -> None:
        self.lines: list[str] = []
        self._error = error

    def update(self, _state) -> None:
        pass

    def say(self, lines: list[str]) -> None:
        if self._error is not None:
            raise self._error
        self.lines += lines


def interrupted(running, shown, *, grace_s: float, at_s: list[float]) -> Outcome:
    """Watch `running`, with Ctrl-C typed at these times."""
    interrupts, outcomes = Interrupts(), []
    live = LiveTrace(running.console.parent)
    supervisor = Supervisor(running, live, shown, 300.0, grace_s=grace_s)
    watching = threading.Thread(
        target=lambda: outcomes.append(supervisor.watch(interrupts)), daemon=True
    )
    began = time.monotonic()
    watching.start()
    for at in at_s:
        time.sleep(max(0.0, began + at - time.monotonic()))
        interrupts._handle(signal.SIGINT, None)
    watching.join(20)
    assert outcomes, "it still waits"
    return outcomes[0]


def test_a_run_that_nobody_can_ask_is_given_up_in_the_end(tmp_path):
    running, shown = Unanswering(tmp_path), Lines()
    outcome = interrupted(running, shown, grace_s=0.4, at_s=[0.2])
    assert outcome.command_exit_code == 130
    assert running.asked[:2] == ["interrupt", "stop"]
    assert "parts of it may still be running" in shown.lines[-1]


def test_a_third_signal_does_not_wait_for_an_answer(tmp_path):
    running, shown = Unanswering(tmp_path), Lines()
    began = time.monotonic()
    outcome = interrupted(running, shown, grace_s=60.0, at_s=[0.2, 0.7, 1.2])
    assert outcome.command_exit_code == 130
    assert time.monotonic() - began < 10


def test_a_run_is_asked_to_end_also_where_nothing_can_be_shown(tmp_path):
    running = Unanswering(tmp_path)
    full = Lines(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert interrupted(running, full, grace_s=0.2, at_s=[0.2]).interrupted_by == signal.SIGINT
    assert running.asked[:2] == ["interrupt", "stop"]


def test_the_last_output_of_a_command_does_not_fail_for_a_full_disk(tmp_path):
    log = tmp_path / "console.log"
    log.write_text("done\n")
    with Echo(Console(file=Full()), log):
        pass


@contextmanager
def handled_by(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """Handle a signal so, however the tests themselves were started."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_counted(number):
    with handled_by(number, signal.SIG_DFL), Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        assert (interrupts.count, interrupts.first) == (1, number)


def test_the_end_of_the_terminal_is_not_heard_under_nohup():
    with handled_by(signal.SIGHUP, signal.SIG_IGN):
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.count == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
