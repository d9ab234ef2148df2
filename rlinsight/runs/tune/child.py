"""The process of one run: the same `rlinsight run` that a user would type.

A run outlives a loop that is killed. The next loop finds it by the trace folder on its command
line, which no other run has, and waits for it rather than starting it twice on the same devices.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from rlinsight.errors import ConfigError, RlinsightError

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
        """Wait for its end. Ctrl-C is passed on, each time, and it ends in order first."""
        interrupted = False
        while True:
            try:
                code = self._process.wait()
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
        """Wait until no process records into the trace, and return what the trace says."""
        while running(self._trace):
            time.sleep(_POLL_S)
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


def running(trace: str) -> bool:
    """Whether a process has the trace folder on its command line."""
    return any(
        trace in (process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE
        for process in psutil.process_iter(["cmdline"])
    )


def recorded(trace: str) -> Ended:
    """Return how a run ended by the manifest of its trace; unknown where it was cut off."""
    import rlinsight

    try:
        manifest = rlinsight.open(trace).manifest
    except RlinsightError:
        return Ended(None, _last_written(trace))
    if manifest.ended_ns is None:
        return Ended(None, _last_written(trace))
    return Ended(manifest.exit_code, manifest.ended_ns / 1e9)


def _last_written(trace: str) -> float | None:
    """Return when a file of a trace was written last: nobody may have looked for days since."""
    times = [path.stat().st_mtime for path in Path(trace).rglob("*") if path.is_file()]
    return max(times, default=None)
