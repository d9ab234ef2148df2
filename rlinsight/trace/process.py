"""`live/process-<node>-<pid>.json`, read back: what one recording process said about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rlinsight.trace.fitting import fitting
from rlinsight.trace.topology import Topology


@dataclass(frozen=True)
class HookState:
    """One hook in one process: `installed`, `skipped` or `failed`, and why."""

    status: str
    reason: str | None = None
    errors: int = 0


@dataclass(frozen=True)
class Process:
    """One recording process. Times in ns since the epoch, on the clock of its node.

    `ended_ns` None: it did not end its recording, that is, it still runs or was killed.
    `clock_offset_ns` is what it added to its monotonic clock to get epoch times.
    """

    node: str
    pid: int
    started_ns: int = 0
    flushed_ns: int = 0
    ended_ns: int | None = None
    run_id: str | None = None
    command: str = ""
    clock_offset_ns: int | None = None
    topology: Topology = field(default_factory=Topology)
    hooks: Mapping[str, HookState] = field(default_factory=dict)
    hook_ns: int = 0
    flush_ns: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_sampler(self) -> bool:
        """Whether it only samples devices: it lives beside the run and outlives its workers."""
        return bool(self.hooks) and all(name.startswith("devices.") for name in self.hooks)

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells processes apart: pids are reused, start times are not."""
        return (self.node, self.pid, self.started_ns)

    @property
    def own_lanes(self) -> tuple[str, ...]:
        """The lanes this process declared for itself, not for another process."""
        lanes = (lane for lane in self.topology.lanes if lane.pid in (None, self.pid))
        return tuple(lane.id for lane in lanes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as the process file has it."""
        return {
            **vars(self),
            "topology": self.topology.to_dict(),
            "hooks": {name: asdict(state) for name, state in self.hooks.items()},
            "errors": list(self.errors),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Process:
        """Read the JSON form; unknown keys are ignored.

        Raises ValueError for a value of a wrong type, TypeError for a missing one.
        """
        known = fitting(cls, data, without=("topology", "hooks"))
        known["topology"] = Topology.from_dict(data.get("topology") or {})
        known["hooks"] = {
            name: HookState(**fitting(HookState, hook))
            for name, hook in (data.get("hooks") or {}).items()
        }
        known["errors"] = tuple(known.get("errors", ()))
        return cls(**known)


def read_process(data: bytes) -> Process:
    """Read a process file. Raises ValueError, in one sentence, when it is damaged."""
    try:
        return Process.from_dict(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"damaged: {error}") from error
