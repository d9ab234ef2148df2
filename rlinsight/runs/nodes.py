"""The launcher's side of gathering: which cluster, when, and what goes into the manifest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from rlinsight.runs.checks.cluster import running_cluster
from rlinsight.runs.gather import Gathered
from rlinsight.trace.clock import Clocks

#: A cluster that lost its head never answers; the run's own result must not wait for it.
_TIMEOUT_S: Final = 300.0
_RAY_CLIENT_PORT: Final = 10001


class Nodes:
    """Gathers from the nodes of the cluster a run used; without a cluster it does nothing.

    verl's own cluster of one machine ends with the run and leaves nothing to gather.
    """

    def __init__(self, trace: Path, run_id: str, address: str | None) -> None:
        self._trace = trace
        self._run_id = run_id
        self._address = address
        self._companion: subprocess.Popen[str] | None = None
        self.clocks = Clocks()

    def begin(self, sample_interval_s: float, *, sample_here: bool) -> None:
        """Measure the clocks and sample the devices of the other nodes, in the background."""
        if self._address is None:
            return
        here = ["--sample-here"] if sample_here else []
        self._companion = self._start("--sample", str(sample_interval_s), *here)

    def finish(self) -> Gathered | None:
        """Fetch what other nodes recorded and measure the clocks again; None without cluster."""
        if self._address is None:
            return None
        if self._companion is not None:
            # The end of its input tells it to stop sampling.
            self._take_clocks(_result(self._companion))
            self._companion = None
        gathered = _result(self._start())
        self._take_clocks(gathered)
        return gathered

    def close(self) -> None:
        """End what `begin` started, if `finish` has not."""
        if self._companion is not None:
            self._companion.kill()
            self._companion.communicate()
            self._companion = None

    def _start(self, *options: str) -> subprocess.Popen[str]:
        assert self._address is not None
        program = [sys.executable, "-m", "rlinsight.runs.gather"]
        # It looks at a trace and must not record into it.
        environment = {k: v for k, v in os.environ.items() if k != "RLINSIGHT_TRACE"}
        return subprocess.Popen(
            [*program, str(self._trace), self._run_id, self._address, *options],
            env={**environment, "RAY_USAGE_STATS_ENABLED": "0"},
            stdin=subprocess.PIPE,  # its end tells that we have ended, however that came
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def _take_clocks(self, gathered: Gathered) -> None:
        if gathered.clocks:
            self.clocks = self.clocks.merge(Clocks.from_dict(gathered.clocks))


def cluster_address(ray_address: str | None, environment: Mapping[str, str]) -> str | None:
    """Return where the launcher can talk to the run's cluster, None when it has none of its own.

    A job server's URL becomes a Ray client address, unless that cluster also runs here.
    """
    if ray_address is None:
        return running_cluster(environment)
    local = running_cluster({k: v for k, v in environment.items() if k != "RAY_ADDRESS"})
    host = urlsplit(ray_address if "://" in ray_address else f"//{ray_address}").hostname
    return local or f"ray://{host}:{_RAY_CLIENT_PORT}"


def _result(process: subprocess.Popen[str]) -> Gathered:
    try:
        output, _ = process.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Gathered(failed={"cluster": f"no answer within {_TIMEOUT_S:.0f} s"})
    try:
        parsed: dict[str, Any] = json.loads(output.splitlines()[-1])
        return Gathered(**parsed)
    except (ValueError, IndexError, TypeError):
        return Gathered(failed={"cluster": f"gathering ended with exit code {process.returncode}"})
