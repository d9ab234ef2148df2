"""A run as a process of this machine, in a session of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from rlinsight.errors import RlinsightError
from rlinsight.runs import processes
from rlinsight.runs.plan import CONSOLE_FILE, Plan

_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class LocalProcess:
    """The program that was started and everything it starts.

    Its output goes straight into `<trace>/console.log`, so it does not depend on us.
    """

    def __init__(self, plan: Plan, environment: Mapping[str, str], *, stdin: int | None) -> None:
        self._run_id = plan.run_id
        self.console = plan.trace / CONSOLE_FILE
        with self.console.open("ab") as output:
            try:
                self._process = subprocess.Popen(
                    plan.command,
                    env={**environment, **processes.KEEP_MARK_READABLE},
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise RlinsightError(f"cannot start `{plan.command[0]}`: {reason}") from error

    @property
    def pid(self) -> int:
        """The pid of the program; it leads a session."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, None while it runs; killed by signal n is -n."""
        return self._process.poll()

    def interrupt(self) -> None:
        """Do what Ctrl-C in a terminal does: SIGINT to the program's process group."""
        try:
            os.killpg(self.pid, signal.SIGINT)
        except (ProcessLookupError, PermissionError):
            pass

    def stop(self, *, grace_s: float, in_a_hurry: Callable[[], bool]) -> None:
        """End all processes of the run, with force where asking for `grace_s` does not help."""
        processes.stop(self._run_id, self.pid, grace_s=grace_s, in_a_hurry=in_a_hurry)
        self._process.poll()  # collects the zombie

    def rest(self) -> set[processes.Process]:
        """Return the processes of the run that are still there."""
        return processes.of_run(self._run_id, self.pid)


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a text file, without colors; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65536))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return _COLOR.sub("", text).splitlines()[-lines:]
