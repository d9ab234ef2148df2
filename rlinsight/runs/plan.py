"""What will be started: a command, its environment and its overrides, before anything runs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rlinsight.runs import kernel_window, verl_args
from rlinsight.runs.config import RecordingConfig, RunConfig
from rlinsight.runs.overrides import Quoted
from rlinsight.trace import run_clock
from rlinsight.trace.run_clock import RunClock

#: Where verl's file logger writes inside the trace folder.
METRICS_FILE: Final = "verl-metrics.jsonl"
CONSOLE_FILE: Final = "console.log"

_ENV_PREFIX: Final = "+ray_kwargs.ray_init.runtime_env.env_vars"


@dataclass(frozen=True)
class Platform:
    """What the device adds to a run: environment and Hydra overrides (`key=value`)."""

    environment: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[str] = ()


@dataclass(frozen=True)
class Plan:
    """One run, ready to start.

    `environment` is added to the launcher's own. `protocol` is the part of it that turns
    recording on, which is all that may be shown or stored: the rest can hold secrets.
    """

    run_id: str
    trace: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]
    protocol: Mapping[str, str]
    overrides: tuple[str, ...] = ()
    module: str | None = None

    @property
    def clock(self) -> RunClock:
        """The clock of what is recorded: the machine's, or that of emulated devices."""
        return run_clock.of(self.environment.get(run_clock.VARIABLE))

    def clock_environment(self) -> dict[str, str]:
        """Return the variable that gives a process this clock, none for the machine's."""
        name = run_clock.VARIABLE
        return {name: self.environment[name]} if name in self.environment else {}

    def shell_line(self) -> str:
        """Return the command as one would type it."""
        return shlex.join(self.command)


def managed(
    config: RunConfig, *, run_id: str, trace: Path, platform: Platform | None = None
) -> Plan:
    """Return the plan of a verl run that records into the folder `trace`."""
    platform = platform or Platform()
    protocol = recording_environment(config, run_id, trace)
    kernels = kernel_window.overrides(config, trace)
    values = verl_args.build(config, list(platform.overrides), kernels)
    values.update({"hydra.run.dir": str(trace / "hydra")})
    ours = {**protocol, "VERL_FILE_LOGGER_PATH": str(trace / METRICS_FILE)}
    if config.ray_address is None:
        # A Ray cluster that was started before us does not have our environment.
        values.update({f"{_ENV_PREFIX}.{name}": Quoted(value) for name, value in ours.items()})
    module = verl_args.entry_module(config)
    overrides = tuple(values.arguments())
    return Plan(
        run_id=run_id,
        trace=trace,
        command=(_python(config), "-u", "-m", module, *overrides),
        environment={
            **platform.environment,
            "HYDRA_FULL_ERROR": "1",
            **config.environment,
            **ours,
        },
        protocol=protocol,
        overrides=overrides,
        module=module,
    )


def wrapped(config: RecordingConfig, command: Sequence[str], *, run_id: str, trace: Path) -> Plan:
    """Return the plan of a command of the user's own: the same recording, no other change."""
    protocol = recording_environment(config, run_id, trace)
    return Plan(
        run_id=run_id,
        trace=trace,
        command=tuple(command),
        environment={**config.environment, **protocol},
        protocol=protocol,
    )


def recording_environment(config: RecordingConfig, run_id: str, trace: Path) -> dict[str, str]:
    """Return the variables that turn recording on in every process that has them."""
    collectors: dict[str, Any] = config.collectors.model_dump()
    collectors |= kernel_window.limits(config)
    return {
        "RLINSIGHT_TRACE": str(trace),
        "RLINSIGHT_RUN_ID": run_id,
        "RLINSIGHT_COLLECTORS": json.dumps(collectors, separators=(",", ":")),
    }


def _python(config: RunConfig) -> str:
    # A cluster's nodes need not have our interpreter at our path.
    return sys.executable if config.ray_address is None else "python"
