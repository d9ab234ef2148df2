"""The process that samples the devices of one node while a run goes on."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rlinsight.collectors import devices

#: In `collectors.disable`: no sampling of devices at all.
SWITCH: Final = "devices"

_ENDS_WITHIN_S: Final = 10.0
_LOOK_S: Final = 0.5
#: A driver that kills the sampler again and again is left alone.
_MOST_RESTARTS: Final = 5


class DeviceSampler:
    """Runs `rlinsight.collectors.devices` on this node, from `start` to `stop`.

    It ends with the process that started it, however that ends. A sampler that cannot work
    says so in the trace and costs nothing else; one that dies (a driver library may crash) is
    started again, and the trace has a gap with the reason.
    """

    def __init__(
        self,
        trace: Path,
        run_id: str,
        interval_s: float,
        node: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._trace, self._run_id = trace, run_id
        self._interval_s, self._node = interval_s, node
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._watch: threading.Thread | None = None

    def start(self) -> None:
        """Start sampling. Raises OSError when no process can be started."""
        self._process = self._begin(None)
        self._watch = threading.Thread(target=self._restart_dead, name="sampler", daemon=True)
        self._watch.start()

    def stop(self) -> None:
        """Let it write what it has, and end it."""
        self._stopping.set()
        if self._watch is not None:
            self._watch.join(_ENDS_WITHIN_S)
        process, self._process = self._process, None
        if process is not None:
            devices.stop(process, grace_s=_ENDS_WITHIN_S)

    def _begin(self, gap: str | None) -> subprocess.Popen[bytes]:
        return devices.start(
            self._trace,
            self._interval_s,
            run_id=self._run_id,
            node=self._node,
            gap=gap,
            environment=self._environment,
        )

    def _restart_dead(self) -> None:
        restarts = 0
        while not self._stopping.wait(_LOOK_S) and restarts < _MOST_RESTARTS:
            code = None if self._process is None else self._process.poll()
            if code is None:
                continue
            if not self._trace.is_dir():  # nothing to sample into: it ended for this reason
                return
            restarts += 1
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            try:
                self._process = self._begin(f"the sampler died ({ended}) and was started again")
            except OSError:
                return
