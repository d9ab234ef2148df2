"""The process of one run: the same `rlinsight run` that a user would type.

A run outlives a loop that is killed. The next loop finds it by the trace folder on its command
line, which no other run has, and waits for it rather than starting it twice on the same devices.
Waited for or read from its trace, it has the same exit code: that of `rlinsight run`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil

from rlinsight.errors import ConfigError, RlinsightError
from rlinsight.runs.finish import ENDED

_POLL_S: Final = 0.5


@dataclass(frozen=True)
class Ended:
    """How and when (Unix seconds) a run ended; an exit code of None says that nobody knows.

    Of a run that was cut off, `at_s` is the last sign of it, None where there is none.
    """

    exit_code: int | None
    at_s: float | None


class Child:
    """A run that we started, in a session of its own: a closed terminal does not end it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def wait(self) -> Ended:
        """Wait for its end. Ctrl-C is passed on, each time, and it ends in order first.

        In short waits: since polars was imported, Ctrl-C does not cut off one without a timeout.
        """
        interrupted = False
        while True:
            try:
                code = self._process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                interrupted = True
                self._process.send_signal(signal.SIGINT)
                continue
            if interrupted:
                raise KeyboardInterrupt
            return Ended(code, time.time())


class Adopted:
    """A run that an earlier loop started, whether it still runs or has ended."""

    def __init__(self, trace: str) -> None:
        self._trace = trace

    def wait(self) -> Ended:
        """Wait until no process records into the trace, and return what the trace says.

        Ctrl-C is passed on, each time, and the run ends in order first.
        """
        interrupted = to_pass_on = False
        while True:
            try:
                found = running(self._trace)
                if not found:
                    break
                if to_pass_on:
                    _interrupt(found)
                    to_pass_on = False
                time.sleep(_POLL_S)
            except KeyboardInterrupt:
                interrupted = to_pass_on = True
        if interrupted:
            raise KeyboardInterrupt
        return recorded(self._trace)


def start(profile: Path, trace: str, output: Path, cwd: Path, *, smoke: bool) -> Child:
    """Start the run of a profile; what it prints goes to `output`."""
    command = [sys.executable, "-m", "rlinsight", "run", "--profile", str(profile)]
    command += ["--trace", trace, *(["--smoke"] if smoke else [])]
    try:
        with output.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"cannot start the run of `{profile}`: {error}") from error
    return Child(process)


def running(trace: str) -> list[psutil.Process]:
    """Return the process of `rlinsight run` that records into the trace folder, none if it ended.

    A process that shows the trace, `rlinsight serve` say, has the folder on its command line too.
    """
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if _records_into(trace, process.info["cmdline"] or ()) and _is_alive(process)
    ]


def _records_into(trace: str, command: Sequence[str]) -> bool:
    pairs = list(pairwise(command))
    is_run = any(word == "run" and Path(program).name == "rlinsight" for program, word in pairs)
    return is_run and ("--trace", trace) in pairs


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:  # it has ended since it was listed
        return False


def _interrupt(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGINT)


def recorded(trace: str) -> Ended:
    """Return how `rlinsight run` ended by the manifest of its trace; unknown where it was cut off.

    The manifest's own exit code is the training's: of a run that was stopped, or broke off while it
    said that all was well, another one.
    """
    import rlinsight

    try:
        noted = rlinsight.open(trace).manifest.notes.get(ENDED)
    except RlinsightError:
        noted = None
    if not isinstance(noted, dict):
        return Ended(None, _last_written(trace))
    return Ended(noted.get("exit_code"), noted.get("at_s"))


def _last_written(trace: str) -> float | None:
    """Return when a file of a trace was written last: nobody may have looked for days since."""
    times = [path.stat().st_mtime for path in Path(trace).rglob("*") if path.is_file()]
    return max(times, default=None)
