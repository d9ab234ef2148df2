"""The process that samples the devices of one node while a run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final

#: In `collectors.disable`: no sampling of devices at all.
SWITCH: Final = "devices"

_ENDS_WITHIN_S: Final = 10.0


class DeviceSampler:
    """Runs `rlinsight.collectors.devices` on this node, for the duration of a `with` block.

    It ends with the process that started it, however that ends. A sampler that cannot work
    says so in the trace and costs nothing else.
    """

    def __init__(
        self, trace: Path, run_id: str, interval_s: float, node: str | None = None
    ) -> None:
        options = ["--interval", str(interval_s), "--run-id", run_id, "--parent", str(os.getpid())]
        program = [sys.executable, "-m", "rlinsight.collectors.devices", str(trace)]
        self._command = [*program, *options, *(["--node", node] if node else [])]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start sampling."""
        # It is no process of the run, and must not be taken for one by its environment.
        environment = {k: v for k, v in os.environ.items() if k != "RLINSIGHT_RUN_ID"}
        self._process = subprocess.Popen(
            self._command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Let it write what it has, and end it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> DeviceSampler:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
