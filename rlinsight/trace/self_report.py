"""What a recording process knows about itself, for its process file and the manifest."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Final

from rlinsight.trace.schema import SCHEMA_VERSION
from rlinsight.trace.topology import Topology

_MAX_ERRORS: Final = 20


class SelfReport:
    """Identity, clock anchor, topology, hooks and notes of one process.

    What it holds is replaced, never changed in place: the flusher may be writing it.
    """

    def __init__(self, notes: dict[str, Any], topology: Topology | None = None) -> None:
        self.notes = notes
        self.topology = topology or Topology()
        self.hooks: dict[str, dict[str, Any]] = {}
        self.hook_ns = 0
        self.flush_ns = 0
        self.errors: list[str] = []
        self.identity: dict[str, Any] = {}
        # Reentrant: a signal handler may record while the thread it interrupts holds it.
        self._lock = threading.RLock()

    def start(self, run_id: str, node: str, pid: int, offset_ns: int) -> None:
        """Take the identity of the process; `offset_ns` turns its monotonic clock into epoch."""
        self.identity = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "node": node,
            "pid": pid,
            "command": " ".join(sys.argv)[:500],
            "clock_offset_ns": offset_ns,
        }

    def for_child(self) -> SelfReport:
        """Return the report of a forked child, which repeats none of the parent's hooks."""
        return SelfReport({})

    def hook(self, name: str, status: str, reason: str | None) -> None:
        """Note the status of a hook; failures are counted and do not hide that it is installed."""
        with self._lock:
            known = self.hooks.get(name, {"status": status, "reason": None, "errors": 0})
            if status == "failed":
                errors = known["errors"] + 1
                known = {**known, "errors": errors, "reason": known["reason"] or reason}
            else:
                known = {**known, "status": status, "reason": reason}
            self.hooks = {**self.hooks, name: known}

    def declare(self, topology: Topology) -> None:
        """Add lanes and devices; what is already known of them is completed."""
        with self._lock:
            self.topology = self.topology.merge(topology)

    def note(self, key: str, value: Any) -> None:
        """Store a JSON value for the manifest."""
        with self._lock:
            self.notes = {**self.notes, key: value}

    def complain(self, problem: str) -> None:
        """Note a problem of the recording itself, and say it once."""
        with self._lock:
            if problem in self.errors or len(self.errors) >= _MAX_ERRORS:
                return
            self.errors = [*self.errors, problem]
        with contextlib.suppress(Exception):  # it may be closed, or None
            sys.stderr.write(f"rlinsight: {problem}\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without the row counts."""
        return {
            **self.identity,
            "topology": self.topology.to_dict(),
            "hooks": self.hooks,
            "hook_ns": self.hook_ns,
            "flush_ns": self.flush_ns,
            "errors": self.errors,
            "notes": self.notes,
        }
