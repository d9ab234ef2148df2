"""The process that samples the devices of one node while a run goes on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from rlinsight.collectors import devices

#: In `collectors.disable`: no sampling of devices at all.
SWITCH: Final = "devices"

_ENDS_WITHIN_S: Final = 10.0


class DeviceSampler:
    """Runs `rlinsight.collectors.devices` on this node, from `start` to `stop`.

    It ends with the process that started it, however that ends. A sampler that cannot work
    says so in the trace and costs nothing else.
    """

    def __init__(
        self, trace: Path, run_id: str, interval_s: float, node: str | None = None
    ) -> None:
        self._trace, self._run_id = trace, run_id
        self._interval_s, self._node = interval_s, node
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start sampling. Raises OSError when no process can be started."""
        self._process = devices.start(
            self._trace, self._interval_s, run_id=self._run_id, node=self._node
        )

    def stop(self) -> None:
        """Let it write what it has, and end it."""
        process, self._process = self._process, None
        if process is not None:
            devices.stop(process, grace_s=_ENDS_WITHIN_S)
