"""Start a prepared run, follow it to its end, and put its trace in order."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rlinsight.errors import TraceError
from rlinsight.runs.config import RunConfig
from rlinsight.runs.device_sampler import SWITCH, DeviceSampler
from rlinsight.runs.finish import Finished, finish
from rlinsight.runs.interrupts import Interrupts
from rlinsight.runs.live import LiveTrace
from rlinsight.runs.local_process import LocalProcess
from rlinsight.runs.nodes import Nodes, cluster_address
from rlinsight.runs.prepare import Prepared
from rlinsight.runs.ray_job import RayJob
from rlinsight.runs.supervise import Display, Running, Supervisor

#: Environment values are the user's, and some are secrets: only their names are kept.
_HIDDEN: Final = "(hidden)"


def launch(
    prepared: Prepared, display: Callable[[Path], AbstractContextManager[Display]]
) -> Finished:
    """Run to the end; `display` gets the console log's path and is entered while it runs.

    Raises RlinsightError when the run cannot be started. Whatever happens after that, the
    trace is put in order, and nothing that was started is left running.
    """
    config, plan = prepared.config, prepared.plan
    _make_folder(plan.trace)
    write_manifest(prepared)
    environment = {**os.environ, **plan.environment}
    nodes = Nodes(plan.trace, plan.run_id, cluster_address(config.ray_address, environment))
    live = LiveTrace(plan.trace, plan.clock)
    try:
        with Interrupts() as interrupts:
            running = _start(prepared, environment)
            with _ended_in_any_case(running), _sampling(prepared, nodes):
                with display(running.console) as shown:
                    supervisor = Supervisor(
                        running,
                        live,
                        shown,
                        config.stall_report_s,
                        config.stall_timeout_s,
                        planned_steps=prepared.total_steps,
                    )
                    outcome = supervisor.watch(interrupts)
        # From here on Ctrl-C ends us as usual: the trace is readable at any moment.
        return finish(prepared, outcome, live.state, nodes)
    finally:
        nodes.close()


def _make_folder(trace: Path) -> None:
    try:
        trace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(f"cannot make the trace folder `{trace}`: {reason}") from error


@contextmanager
def _ended_in_any_case(running: Running) -> Iterator[None]:
    try:
        yield
    except BaseException:
        running.stop(grace_s=0.0, in_a_hurry=lambda: True)
        raise


@contextmanager
def _sampling(prepared: Prepared, nodes: Nodes) -> Iterator[None]:
    """Sample devices: those of this node, unless only a job runs, and those of the others."""
    config, plan = prepared.config, prepared.plan
    if SWITCH in config.collectors.disable:
        yield
        return
    interval_s, is_job = config.collectors.sample_interval_s, config.ray_address is not None
    sampler = DeviceSampler(
        plan.trace, plan.run_id, interval_s, environment=plan.clock_environment()
    )
    with suppress(OSError):  # a machine that starts no more processes still trains
        nodes.begin(interval_s, sample_here=is_job)
        if not is_job:
            sampler.start()
    try:
        yield
    finally:
        sampler.stop()


def _start(prepared: Prepared, environment: dict[str, str]) -> Running:
    address = prepared.config.ray_address
    if address is not None:
        return RayJob(prepared.plan, address)
    is_wrapped = prepared.plan.module is None
    stdin = None if is_wrapped else subprocess.DEVNULL
    return LocalProcess(prepared.plan, environment, stdin=stdin)


def write_manifest(prepared: Prepared) -> None:
    """Write what is known before the start: a run that dies at once still says what it was."""
    from rlinsight.collectors.verl.topology import package_versions
    from rlinsight.trace.manifest import update_manifest

    versions = {**package_versions(), "python": sys.version.split()[0]}
    update_manifest(
        prepared.plan.trace,
        run_id=prepared.plan.run_id,
        mode=prepared.config.mode,
        started_ns=prepared.plan.clock.now_ns(),
        config=dict(prepared.settings.values),
        versions=versions,
        notes={
            "smoke": prepared.is_smoke,
            "launch": _launch_note(prepared),
            **_emulated_note(prepared),
        },
    )


def _launch_note(prepared: Prepared) -> dict[str, Any]:
    config = prepared.config.model_dump(mode="json")
    config["environment"] = dict.fromkeys(prepared.config.environment, _HIDDEN)
    return {
        "command": list(prepared.plan.command),
        "wrapped": prepared.plan.module is None,
        "device": prepared.config.device,
        "total_steps": prepared.total_steps,
        "total_devices": _total_devices(prepared),
        "profile": config,
    }


def _emulated_note(prepared: Prepared) -> dict[str, Any]:
    """Say what the devices cost, where they are emulated: those who read the trace must know."""
    config = prepared.config
    if not isinstance(config, RunConfig) or config.device != "emulated":
        return {}
    return {"emulated": config.emulated.model_dump(mode="json")}


def _total_devices(prepared: Prepared) -> int | None:
    config = prepared.config
    return config.resources.total_devices if isinstance(config, RunConfig) else None
