"""What a recording process knows about itself, for its process file and the manifest."""

from __future__ import annotations

import sys
from typing import Any

from rlinsight.trace.schema import SCHEMA_VERSION
from rlinsight.trace.topology import Topology


class SelfReport:
    """Identity, clock anchor, topology, hooks, notes and row counts of one process."""

    def __init__(self, notes: dict[str, Any], topology: Topology | None = None) -> None:
        self.notes = notes
        self.topology = topology or Topology()
        self.hooks: dict[str, dict[str, Any]] = {}
        self.hook_ns = 0
        self.flush_ns = 0
        self.errors: list[str] = []
        self.identity: dict[str, Any] = {}

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
        known = self.hooks.get(name, {"status": status, "reason": None, "errors": 0})
        if status == "failed":
            known = {**known, "errors": known["errors"] + 1, "reason": known["reason"] or reason}
        else:
            known = {**known, "status": status, "reason": reason}
        self.hooks = {**self.hooks, name: known}

    def complain(self, problem: str) -> bool:
        """Note a problem of the recording itself; return whether it was new."""
        if problem in self.errors or len(self.errors) >= 20:
            return False
        self.errors = [*self.errors, problem]
        sys.stderr.write(f"rlinsight: {problem}\n")
        return True

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
