"""Starting and stopping the sampler process of a node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The sampler must not count as a process of the run, nor record itself as one.
_MARKS = ("RLINSIGHT_TRACE", "RLINSIGHT_RUN_ID")


def start(
    trace_path: str | os.PathLike[str],
    interval_s: float = 1.0,
    *,
    run_id: str | None = None,
    node: str | None = None,
    parent_pid: int | None = None,
    gap: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start sampling this node into the folder `trace_path`, every `interval_s` (0.05 to 60) s.

    `run_id` selects the processes whose figures are kept (default: `RLINSIGHT_RUN_ID`); `gap`
    says why samples are missing until now, where they are; `environment` is added to ours.
    The process ends by itself when `parent_pid` (default: this process) ends, when the
    trace folder is gone, and on SIGTERM. Raises OSError when it cannot be started.
    """
    command = [sys.executable, "-m", __package__, str(Path(trace_path).absolute())]
    options = {
        "--interval": interval_s,
        "--run-id": run_id or os.environ.get("RLINSIGHT_RUN_ID"),
        "--node": node,
        "--gap": gap,
        "--parent": os.getpid() if parent_pid is None else parent_pid,
    }
    command += [f"{name}={value}" for name, value in options.items() if value is not None]
    inherited = {key: value for key, value in os.environ.items() if key not in _MARKS}
    return subprocess.Popen(
        command,
        env={**inherited, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[Any], grace_s: float = 5.0) -> int:
    """End a sampler, with force after `grace_s` seconds; return its exit code.

    0 means that it wrote everything it had; its rows are then on disk.
    """
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()
