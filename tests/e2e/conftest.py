"""Real training runs on the CPU, one per mode, shared by all tests that look at them."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlinsight

EXAMPLES = Path(__file__).parents[2] / "examples"
CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give real runs their time; tests that look at the same run stay in one process."""
    item.add_marker(pytest.mark.e2e)
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(1500))
    item.add_marker(pytest.mark.xdist_group(_run_of(item)))


def _run_of(item: pytest.Item) -> str:
    """Return which run a test looks at: a mode, or one of its own."""
    if item.path.stem == "test_check":
        return "sync"
    values = item.callspec.params if hasattr(item, "callspec") else {}
    return str(values.get("run", item.name))


class Run:
    """A finished run: its folder, exit code and what it printed."""

    def __init__(self, folder: Path, done: subprocess.CompletedProcess[str]) -> None:
        self.folder = folder
        self.exit_code = done.returncode
        self.output = done.stdout + done.stderr

    def open(self) -> rlinsight.Trace:
        return rlinsight.open(self.folder)


def profile(mode: str, folder: Path, **changes: Any) -> Path:
    """Write the example of `mode` with `changes` at its top level; `overrides` are merged."""
    config = yaml.safe_load((EXAMPLES / f"{mode}.yaml").read_text())
    config["overrides"] |= changes.pop("overrides", {})
    path = folder / f"{mode}.yaml"
    path.write_text(yaml.safe_dump(config | {"trace": str(folder / "trace")} | changes))
    return path


def cli(*arguments: str | Path, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Run the real command line; on a timeout it is ended as a user would, with Ctrl-C."""
    process = subprocess.Popen(
        [CLI, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        pytest.fail(f"no end after {timeout} s:\n{out[-3000:]}\n{err[-3000:]}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory):
    """Return a function that records a mode once per test session."""
    runs: dict[str, Run] = {}

    def record(mode: str, **changes: Any) -> Run:
        if mode not in runs:
            folder = tmp_path_factory.mktemp(mode)
            done = cli("run", "--profile", profile(mode, folder, **changes))
            runs[mode] = Run(folder / "trace", done)
        return runs[mode]

    return record


def wait_until(condition, timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {timeout} s")
        time.sleep(0.2)


def processes_of(run_folder: Path) -> dict[int, str]:
    """Return pid -> command of every live process that records into `run_folder`."""
    mark = f"RLINSIGHT_TRACE={run_folder}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = command.strip()
            except OSError:
                continue  # it has just ended
    return found
