"""Which processes belong to a run, and how they are stopped: those, and nothing else.

Ray's daemons leave the process group of the program that started them, and its workers
outlive it when it is killed. Two marks survive that: the session the program was started
in, and the run id in the environment. A process is ours when it has either mark, or when
an ancestor has.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import psutil

#: The environment variable that marks a process of a run.
MARK: Final = "RLINSIGHT_RUN_ID"
#: Ray renames its workers with setproctitle, which overwrites the environment that the
#: system shows unless it is told not to.
KEEP_MARK_READABLE: Final = {"SPT_NOENV": "1"}

_POLL_S: Final = 0.1
_DEATH_TAKES_S: Final = 5.0


@dataclass(frozen=True, order=True)
class Process:
    """A process, told apart from a later one that got the same pid."""

    pid: int
    started: float
    name: str = field(compare=False, default="")
    parent: int = field(compare=False, default=0)


def of_run(run_id: str, session: int) -> set[Process]:
    """Return the living processes of the run, without this one and its ancestors.

    `session` is the pid of the process that the launcher started, which leads a session.
    """
    alive = {p.pid: p for p in psutil.process_iter(["pid", "ppid", "create_time", "name"])}
    marked = {pid for pid in alive if _session(pid) == session or _has_mark(pid, run_id)}
    ours = marked | {pid for pid in alive if _descends(pid, marked, alive)}
    ours -= {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    return {_process(alive[pid]) for pid in ours if not _is_dead(alive[pid])}


def stop(
    run_id: str, session: int, *, grace_s: float, in_a_hurry: Callable[[], bool] = lambda: False
) -> set[Process]:
    """Ask the run's processes to end, kill those that are left; return what would not die.

    `in_a_hurry` is asked while waiting, and cuts the `grace_s` seconds short.
    """
    _signal(of_run(run_id, session), signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while of_run(run_id, session) and time.monotonic() < deadline and not in_a_hurry():
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _DEATH_TAKES_S
    # What is being killed may just have started another.
    while (left := of_run(run_id, session)) and time.monotonic() < deadline:
        _signal(left, signal.SIGKILL)
        time.sleep(_POLL_S)
    return left


def is_alive(process: Process) -> bool:
    """Tell whether this very process still runs (a zombie does not)."""
    try:
        found = psutil.Process(process.pid)
        return found.create_time() == process.started and not _is_dead(found)
    except psutil.Error:
        return False


def find(pid: int) -> Process | None:
    """Return the living process with this pid, or None."""
    try:
        return _process(psutil.Process(pid))
    except psutil.Error:
        return None


def _signal(processes: Iterable[Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _process(found: psutil.Process) -> Process:
    info = getattr(found, "info", None) or found.as_dict(["ppid", "create_time", "name"])
    return Process(found.pid, info["create_time"], info["name"] or "", info["ppid"] or 0)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})
    except psutil.Error:
        return True


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _has_mark(pid: int, run_id: str) -> bool:
    try:
        return psutil.Process(pid).environ().get(MARK) == run_id
    except (psutil.Error, OSError):
        return False


def _descends(pid: int, marked: set[int], alive: dict[int, psutil.Process]) -> bool:
    seen: set[int] = set()
    while pid in alive and pid not in seen:
        if pid in marked:
            return True
        seen.add(pid)
        pid = alive[pid].info["ppid"]
    return False
