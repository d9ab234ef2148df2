"""Whether a run goes on, has ended, fell silent, or cannot be read."""

from __future__ import annotations

import time
from typing import Final, Literal

from rlinsight.trace.manifest import Manifest
from rlinsight.webapp.folder import Stamp

RunState = Literal["live", "finished", "failed", "silent", "broken"]

#: Recorders write twice a second and the launcher watches; a file system may lag behind.
SILENT_AFTER_S: Final = 60.0

LABELS: Final[dict[RunState, str]] = {
    "live": "Live",
    "finished": "Finished",
    "failed": "Failed",
    "silent": "Stopped without an end",
    "broken": "Cannot be read",
}


def state_of(manifest: Manifest, stamp: Stamp, now_ns: int | None = None) -> RunState:
    """Return the state; a run without an end is live while its files change."""
    if manifest.ended_ns is not None:
        return "failed" if manifest.exit_code else "finished"
    if manifest.processes and all(p.ended_ns is not None for p in manifest.processes):
        return "finished"
    quiet_ns = (time.time_ns() if now_ns is None else now_ns) - stamp.modified_ns
    return "live" if quiet_ns < SILENT_AFTER_S * 1e9 else "silent"
