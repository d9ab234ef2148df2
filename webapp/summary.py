"""One run in one row: what the list of runs and the comparison show of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from rlinsight.errors import RlinsightError
from rlinsight.webapp.state import LABELS

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.webapp.store import Run


@dataclass(frozen=True)
class Summary:
    """A row; None is unknown. `problem` says why there is nothing else of a trace."""

    id: str
    run: str
    state: str
    mode: str | None = None
    model: str | None = None
    devices: str | None = None
    started_ns: int | None = None
    duration_s: float | None = None
    bound: str | None = None
    largest_bubble: str | None = None
    tokens_per_s_per_device: float | None = None
    samples_per_s: float | None = None
    trainer_idle_ratio: float | None = None
    rollouter_idle_ratio: float | None = None
    alarm: str | None = None
    problem: str | None = None


def summary(run: Run) -> Summary:
    """Return the row of a run; of one with nothing to analyse, or not yet, the reason."""
    try:
        report = run.report
        model = model_of(run.trace.manifest.config)
    except RlinsightError as error:
        return Summary(run.id, run.name, LABELS[run.state], problem=str(error))
    verdict = report.verdict
    idle = {name: pool.idle_ratio for name, pool in report.pools.items()}
    return Summary(
        id=run.id,
        run=run.name,
        state=LABELS[run.state],
        mode=report.run.mode,
        model=model,
        devices=devices_of(report),
        started_ns=report.run.started_ns,
        duration_s=report.run.duration_s,
        bound=verdict.bound,
        largest_bubble=f"{verdict.owner}: {verdict.cause}" if verdict.cause else None,
        tokens_per_s_per_device=report.throughput.tokens_per_s_per_device.value,
        samples_per_s=report.throughput.samples_per_s.value,
        trainer_idle_ratio=idle.get("trainer"),
        rollouter_idle_ratio=idle.get("rollouter"),
        alarm=verdict.alarm,
    )


def model_of(config: Mapping[str, Any]) -> str | None:
    """Return the last part of the model's path in verl's configuration."""
    value: Any = config
    for key in ("actor_rollout_ref", "model", "path"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return PurePosixPath(value).name if isinstance(value, str) and value else None


def devices_of(report: Report) -> str:
    """Return `4 + 2 cuda`: the devices of the trainer, and of the rollouts if they have own."""
    run = report.run
    counts = f"{run.trainer_devices} + {run.rollout_devices}"
    return f"{counts if run.rollout_devices else run.trainer_devices} {'/'.join(run.device_kinds)}"
