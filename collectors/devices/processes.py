"""The processes of the run on this node: those that carry its id, and their children."""

from __future__ import annotations

import os
from typing import Final

_MARK: Final = b"RLINSIGHT_RUN_ID="


class RunProcesses:
    """Keeps track of which pids belong to a run; each new pid is looked at once.

    Without a run id no process is followed. The lane of a process is `<node>/pid-<pid>`.
    """

    def __init__(self, run_id: str | None, node: str) -> None:
        self._mark = None if run_id is None else _MARK + run_id.encode()
        self._node = node
        self._verdicts: dict[int, bool] = {}
        self.pids: frozenset[int] = frozenset()

    def lane(self, pid: int) -> str:
        """Return the lane of the counters of a process."""
        return f"{self._node}/pid-{pid}"

    def refresh(self) -> frozenset[int]:
        """Look for processes that came or went; return those of the run."""
        if self._mark is None:
            return self.pids
        alive = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
        # A pid that is gone is forgotten, so that another process may have it later.
        self._verdicts = {pid: ours for pid, ours in self._verdicts.items() if pid in alive}
        for pid in sorted(alive - self._verdicts.keys()):
            self._verdicts[pid] = self._is_ours(pid)
        self.pids = frozenset(pid for pid, ours in self._verdicts.items() if ours)
        return self.pids

    def _is_ours(self, pid: int) -> bool:
        return self._has_mark(pid) or self._verdicts.get(_parent(pid), False)

    def _has_mark(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
                return self._mark in file.read().split(b"\0")
        except OSError:  # gone again, or another user's
            return False


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # The name, in parentheses, may hold anything; what follows it is fields.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
