"""A Ray cluster that runs already was started without our environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psutil

from rlinsight.runs.checks.facts import Check, Facts, Problem
from rlinsight.runs.config import RunConfig

_TRACE_VARIABLE: Final = "RLINSIGHT_TRACE"
_CONNECT_TIMEOUT_S: Final = 2.0


def running_cluster(environment: Mapping[str, str]) -> str | None:
    """Return the address of the cluster that `ray.init()` would join, or None.

    That is `RAY_ADDRESS`, else the cluster that `ray start` noted last on this machine, if
    it still answers.
    """
    address = environment.get("RAY_ADDRESS")
    if address and address != "local":
        return address
    if address == "local":
        return None
    note = Path(environment.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"  # noqa: S108
    try:
        address = note.read_text("utf-8").strip()
    except OSError:
        return None
    return address if address and answers(address) else None


def answers(address: str) -> bool:
    """Tell whether something accepts connections at `host:port` or at a URL."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), _CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def _raylets_of_this_user() -> Iterator[dict[str, str]]:
    """Yield the environment of every raylet here that we may read."""
    for process in psutil.process_iter(["name", "uids"]):
        uids = process.info["uids"]
        if process.info["name"] == "raylet" and uids and uids.real == os.getuid():
            try:
                yield process.environ()
            except psutil.Error:
                continue


def cluster_has_our_environment(facts: Facts) -> Problem | None:
    """Workers inherit the environment of the raylet that starts them, not ours."""
    if facts.config.ray_address is not None:
        return None  # a submitted job carries its environment along
    address = running_cluster(facts.environment)
    if address is None or _already_has(facts):
        return None
    if not facts.wrapped:
        return _managed_run_on(address, facts.managed)
    return Problem(
        f"a Ray cluster is running at {address} that was started without {_TRACE_VARIABLE}; if "
        "your command joins it, its workers will record nothing. Submit through it with "
        "`ray_address`, or pass the RLINSIGHT_* variables in ray.init(runtime_env=...), or stop "
        "it and let the command start its own",
        severity="warning",
    )


def _already_has(facts: Facts) -> bool:
    wanted = facts.environment.get(_TRACE_VARIABLE)
    return any(env.get(_TRACE_VARIABLE) == wanted for env in _raylets_of_this_user())


def _managed_run_on(address: str, config: RunConfig) -> Problem | None:
    # The recording variables go into verl's runtime_env; the rest cannot, for it may be secret.
    if config.device != "cpu" and not config.environment:
        return None
    what = "what `device: cpu` needs" if config.device == "cpu" else "the keys of `environment`"
    return Problem(
        f"a Ray cluster is running at {address} whose workers would lack {what}; submit the run "
        "to it with `ray_address: http://<head>:8265`, stop it, or set "
        "`environment: {RAY_ADDRESS: local}` to start a cluster of the run's own"
    )


def job_server_answers(facts: Facts) -> Problem | None:
    """The job server of `ray_address` is there."""
    address = facts.config.ray_address
    if address is None or answers(address):
        return None
    return Problem(
        f"no Ray job server answers at `ray_address: {address}`; start the cluster with its "
        "dashboard (`ray start --head --dashboard-host=0.0.0.0`) and use http://<head>:8265"
    )


CHECKS: Final = (
    Check("running Ray cluster", cluster_has_our_environment, wrapped=True),
    Check("Ray job server", job_server_answers, wrapped=True),
)
