"""Files, devices, ports and disk of this machine."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rlinsight.runs.checks.cluster import running_cluster
from rlinsight.runs.checks.estimate import kernel_bytes, trace_bytes
from rlinsight.runs.checks.facts import Check, Facts, Problem
from rlinsight.runs.config import EXAMPLE, DeviceName, Pool, RunConfig
from rlinsight.runs.location import reachable

_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
_DEVICE_FILES: Final[dict[DeviceName, str]] = {"cuda": "nvidia[0-9]*", "npu": "davinci[0-9]*"}
_DRIVER_LIST: Final = Path("/proc/driver/nvidia/gpus")
_VISIBLE: Final[dict[DeviceName, str]] = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
}
_PORT_VARIABLES: Final = ("MASTER_PORT", "VLLM_PORT", "VLLM_DP_MASTER_PORT")
_PORT_KEYS: Final = ("ray_kwargs.ray_init.dashboard_port",)
_SPARE_BYTES: Final = 200 * 2**20
_LARGE_PROFILE_BYTES: Final = 200 * 2**20


def files_exist(facts: Facts) -> Problem | None:
    """Model and data sets are there (a hub id and a remote URL are not looked up)."""
    config = facts.managed
    if config.ray_address is not None:
        return None  # they are on the cluster's nodes
    files = [] if config.data == EXAMPLE else config.data.files()
    missing = [f"data `{file}`" for file in files if not _is_remote(file) and not _exists(file)]
    if config.model != EXAMPLE and not _HUB_ID.match(config.model) and not _exists(config.model):
        missing.insert(0, f"model `{config.model}`")
    if not missing:
        return None
    return Problem(f"{', '.join(missing)} not found (looked from {Path.cwd()})")


def _exists(path: str) -> bool:
    return Path(path).expanduser().exists()


def _is_remote(path: str) -> bool:
    return "://" in path


def devices_exist(facts: Facts) -> Problem | None:
    """A run on one machine finds as many devices as its pools ask for."""
    config = facts.managed
    if config.device in {"cpu", "emulated"} or _on_a_cluster(facts):
        return None
    found, wanted = local_devices(facts), config.resources.total_devices
    if found >= wanted:
        return None
    several = max(p.nodes for p in _pools(config)) > 1
    hint = (
        "start a Ray cluster over all nodes first and set RAY_ADDRESS or `ray_address`"
        if several
        else "lower `resources`, or free the devices this process may see"
    )
    return Problem(f"{wanted} {config.device} devices are asked for, found {found} here; {hint}")


def _pools(config: RunConfig) -> list[Pool]:
    pools = (config.resources.trainer, config.resources.rollout)
    return [pool for pool in pools if pool is not None]


def _on_a_cluster(facts: Facts) -> bool:
    """Whether the run joins a cluster, whose devices are not those of this machine."""
    joins = facts.config.ray_address or running_cluster(facts.environment)
    return joins is not None


def local_devices(facts: Facts) -> int:
    """Return the accelerators of this machine that the run may see; a MIG instance is one."""
    kind = facts.config.device
    present = len(list(Path("/dev").glob(_DEVICE_FILES[kind])))
    if kind == "cuda":  # in some containers only the driver's own list is there
        present = max(present, len(list(_DRIVER_LIST.glob("*"))))
    visible = facts.environment.get(_VISIBLE[kind])
    if visible is None:
        return present
    named = list(_named(visible))
    instances = sum(name.startswith("MIG-") for name in named) if present else 0
    return min(present, len(named) - instances) + instances


def _named(visible: str) -> Iterator[str]:
    """Yield the devices of a list of visible ones, which ends where it names none."""
    for part in map(str.strip, visible.split(",")):
        if not part or part == "-1" or part.lower() in {"none", "void", "nodevfiles"}:
            return
        yield part


def ports_are_free(facts: Facts) -> Problem | None:
    """Ports that the configuration fixes can be bound; others are chosen by Ray and vLLM."""
    if facts.config.ray_address is not None:
        return None
    taken = [f"{name}={port}" for name, port in _fixed_ports(facts) if not _is_free(port)]
    if not taken:
        return None
    return Problem(f"port in use: {', '.join(taken)}; free it or choose another")


def _fixed_ports(facts: Facts) -> Iterator[tuple[str, int]]:
    for name in _PORT_VARIABLES:
        text = facts.environment.get(name, "")
        if text.isdigit():
            yield name, int(text)
    for key in _PORT_KEYS:
        port = facts.number(key)
        if port:
            yield key, port


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def disk_holds_the_trace(facts: Facts) -> Problem | None:
    """Twice the estimated trace fits: the live files are kept until compaction is done."""
    existing = next(p for p in (facts.trace, *facts.trace.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    needed = 2 * trace_bytes(facts) + kernel_bytes(facts) + _SPARE_BYTES
    if free >= needed:
        return None
    return Problem(
        f"the trace may need {needed / 2**20:.0f} MiB in `{existing}`, found "
        f"{free / 2**20:.0f} MiB free; choose another `trace` folder or a longer "
        "`collectors.sample_interval_s`"
    )


def kernel_window_is_small(facts: Facts) -> Problem | None:
    """A profile that is too large to be opened tells nobody anything."""
    size = kernel_bytes(facts)
    if size < _LARGE_PROFILE_BYTES:
        return None
    return Problem(
        f"the kernel window may write {size / 2**20:.0f} MiB (compressed); choose fewer "
        "`profile.kernel.steps`, `roles` or `ranks`",
        severity="warning",
    )


def trace_folder_is_new(facts: Facts) -> Problem | None:
    """Two runs in one folder would be read as one."""
    try:
        used = facts.trace.exists() and any(facts.trace.iterdir())
    except NotADirectoryError:
        return Problem(f"`{facts.trace}` is a file; `trace` must name a folder")
    except OSError as error:
        return Problem(f"`{facts.trace}` cannot be used: {error.strerror or error}")
    if not used:
        return None
    return Problem(f"`{facts.trace}` is not empty; use {{time}} in `trace`, or remove the folder")


def trace_url_is_writable(facts: Facts) -> Problem | None:
    """What is recorded for hours can be copied to where it shall be kept."""
    reason = reachable(facts.url) if facts.url else None
    return Problem(reason) if reason else None


def command_exists(facts: Facts) -> Problem | None:
    """The program of a wrapped command can be started."""
    program = facts.command[0] if facts.command else ""
    if not program or facts.config.ray_address is not None:
        return None
    if shutil.which(program, path=facts.environment.get("PATH")):
        return None
    return Problem(f"`{program}` is not an executable found on PATH")


CHECKS: Final = (
    Check("files", files_exist),
    Check("devices", devices_exist),
    Check("ports", ports_are_free, wrapped=True),
    Check("disk", disk_holds_the_trace, wrapped=True),
    Check("kernel window", kernel_window_is_small),
    Check("trace folder", trace_folder_is_new, wrapped=True),
    Check("trace URL", trace_url_is_writable, wrapped=True),
    Check("command", command_exists, wrapped=True),
)
