"""What this machine offers a recorded run, one line per item with what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rlinsight.runs.checks.cluster import running_cluster
from rlinsight.runs.checks.facts import Facts
from rlinsight.runs.checks.machine import local_devices
from rlinsight.runs.checks.software import (
    KNOWN_VERSIONS,
    installed_version,
    plugin_is_registered,
)
from rlinsight.runs.config import DeviceName, RecordingConfig

if TYPE_CHECKING:
    from rlinsight.collectors.verl.coverage import HookStatus

Status = Literal["ok", "warning", "missing"]

_SHM: Final = Path("/dev/shm")  # noqa: S108 - the system's shared memory, where Ray keeps objects
_SHM_NEEDED: Final = 1 << 30
_DISK_NEEDED: Final = 1 << 30
_IMPORT_TIMEOUT_S: Final = 180.0
_ACCELERATORS: Final[tuple[DeviceName, ...]] = ("cuda", "npu")


@dataclass(frozen=True)
class Line:
    """One item. `advice` says what to do, None where nothing is to be done."""

    name: str
    status: Status
    found: str
    advice: str | None = None


def examine(*, deep: bool = False) -> Iterator[Line]:
    """Yield the lines one after the other; `deep` also imports verl and its engines.

    Reading the sources takes a second, importing about half a minute.
    """
    yield _python()
    for module in KNOWN_VERSIONS:
        yield _package(module, deep=deep)
    yield _devices()
    yield _entry_point()
    yield from _hooks(deep=deep)
    yield _space("shared memory", _SHM, _SHM_NEEDED, "Ray keeps its objects there; enlarge it")
    yield _space("disk", Path.cwd(), _DISK_NEEDED, "traces go here by default; set `trace`")
    yield _cluster()


def _python() -> Line:
    version = platform.python_version()
    if (3, 10) <= sys.version_info[:2] <= (3, 12):
        return Line("python", "ok", version)
    return Line("python", "warning", version, "verl 0.9.1 is tried with 3.10 to 3.12")


def _package(module: str, *, deep: bool) -> Line:
    version = installed_version(module)
    if version is None or importlib.util.find_spec(module) is None:
        return Line(module, "missing", "not installed", "pip install 'rlinsight[verl]' or '[cpu]'")
    if deep and (problem := _import_problem(module)):
        return Line(module, "missing", f"{version}, import fails: {problem}", "reinstall it")
    if version.startswith(KNOWN_VERSIONS[module]):
        return Line(module, "ok", version)
    known = ", ".join(KNOWN_VERSIONS[module])
    return Line(module, "warning", version, f"tried with {known}; see the hooks below")


def _import_problem(module: str) -> str | None:
    """Import a module in a process of its own; return the last line of its complaint."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {_IMPORT_TIMEOUT_S:.0f} s"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1]


def _facts(device: DeviceName) -> Facts:
    config = RecordingConfig(device=device)
    return Facts(config=config, trace=Path.cwd(), environment=dict(os.environ))


def _devices() -> Line:
    counts = {kind: local_devices(_facts(kind)) for kind in _ACCELERATORS}
    found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    if counts["cuda"] and importlib.util.find_spec("pynvml") is None:
        advice = "without nvidia-ml-py no GPU is sampled; pip install 'rlinsight[nvidia]'"
        return Line("devices", "warning", found, advice)
    if found:
        return Line("devices", "ok", found)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Line("devices", "ok", f"no accelerator, {cores} CPU cores", "use `device: cpu`")


def _entry_point() -> Line:
    problem = plugin_is_registered(_facts("cpu"))
    if problem is None:
        return Line("entry point", "ok", "verl will load the collectors")
    return Line("entry point", "missing", "verl will not load the collectors", problem.message)


@lru_cache(maxsize=2)
def hook_states(*, deep: bool = False) -> tuple[HookStatus, ...]:
    """Return every hook, and whether it fits the installed verl; found out once."""
    from rlinsight.collectors.verl.coverage import coverage

    return tuple(coverage(modules_import=deep))


def _hooks(*, deep: bool) -> Iterator[Line]:
    if installed_version("verl") is None:
        yield Line("hooks", "missing", "verl is not installed", "install verl first")
        return
    states = hook_states(deep=deep)
    good = [state for state in states if state.status == "ok"]
    complete = len(good) == len(states)
    yield Line(
        "hooks",
        "ok" if complete else "warning",
        f"{len(good)} of {len(states)} fit the installed verl",
        None if complete else "what these would record will be missing from traces:",
    )
    for state in states:
        if state.status != "ok":
            reason = state.reason or state.status
            yield Line(f"hook {state.name}", "warning", f"{state.records}: {reason}")


def _space(name: str, path: Path, needed: int, advice: str) -> Line:
    try:
        free = shutil.disk_usage(path).free
    except OSError:
        return Line(name, "warning", f"{path} cannot be read")
    found = f"{free / 2**30:.1f} GiB free"
    return Line(name, "ok", found) if free >= needed else Line(name, "warning", found, advice)


def _cluster() -> Line:
    address = running_cluster(os.environ)
    if address is None:
        return Line("ray cluster", "ok", "none is running; verl starts its own")
    return Line(
        "ray cluster",
        "warning",
        f"running at {address}",
        "runs will join it, and it lacks our environment; see docs/run.md, `ray_address`",
    )


def worst(lines: list[Line]) -> Status:
    """Return the worst status among the lines."""
    rank: Callable[[Status], int] = ("ok", "warning", "missing").index
    return max((line.status for line in lines), key=rank)
