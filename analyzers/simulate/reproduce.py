"""A simulated run beside the recorded one: how far a simulation can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from rlinsight.analyzers.result import Estimate, Report
from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.predict import SEEDS, WARM_UP, Prediction, simulate
from rlinsight.errors import TraceError


@dataclass(frozen=True)
class Recorded:
    """The figures of a recorded run that a prediction has too; None where unknown."""

    tokens_per_s_per_device: float | None
    samples_per_s: float | None
    step_s: float | None
    trainer_idle_ratio: float | None
    rollouter_idle_ratio: float | None
    trainer_wait_share: float | None
    mean_lag_versions: float | None


@dataclass(frozen=True)
class Compared:
    """One figure, recorded and simulated. `error` is relative for rates and times, and a
    difference for ratios and lags; None where either is unknown.
    """

    figure: str
    recorded: float | None
    simulated: Estimate
    error: float | None


#: As many versions before a window are simulated one by one.
_ALL_BEFORE = 200
#: Figures whose error is relative.
RELATIVE = ("tokens_per_s_per_device", "samples_per_s", "step_s")


def recorded(report: Report) -> Recorded:
    """Return the figures of a report's window."""
    window, pools = report.window, report.pools
    steps = [step for step in report.steps if step.start_ns >= window.start_ns]
    steps = [step for step in steps if step.start_ns < window.end_ns]
    waited = sum(step.activities.get("wait_samples", 0.0) for step in steps)
    rollout = pools.get("rollouter")
    return Recorded(
        tokens_per_s_per_device=report.throughput.tokens_per_s_per_device.value,
        samples_per_s=report.throughput.samples_per_s.value,
        step_s=sum(step.duration_s for step in steps) / len(steps) if steps else None,
        trainer_idle_ratio=pools["trainer"].idle_ratio if "trainer" in pools else None,
        rollouter_idle_ratio=rollout.idle_ratio if rollout else None,
        trainer_wait_share=waited / window.duration_s if steps else None,
        mean_lag_versions=report.staleness.worst_token.mean_versions,
    )


def same_window(report: Report) -> tuple[int, int] | None:
    """Return (warm-up versions, measured versions) of a report's window, None where unknown."""
    if report.window.versions is None:
        return None
    first, last = report.window.versions
    return (first, last - first) if last > first else None


def whole_versions(report: Report) -> tuple[tuple[int, int], int, int]:
    """Return the window of a report without its last version, warm-up versions, and versions in it.

    Rollouts run out of prompts in a run's last version, which a steady window may still hold.
    Raises TraceError where fewer than two versions are left.
    """
    rows = [row for row in report.versions if row.start_ns >= report.window.start_ns]
    full = [row for row in rows if row.trained_samples]
    if len(full) < 3:
        raise TraceError(
            f"expected at least 3 whole versions in the steady part, found {len(full)}"
        )
    return (full[0].start_ns, full[-1].start_ns), full[0].version, len(full) - 1


def reproduce(
    calibration: Calibration, report: Report, seeds: Sequence[int] = SEEDS
) -> tuple[Prediction, tuple[Compared, ...]]:
    """Simulate the window of `report` with the calibrated run's own knobs, and compare."""
    window = same_window(report)
    if window is None:
        prediction = simulate(calibration, seeds=seeds)
    else:
        before, versions = window
        warm_up = _warm_up(before, calibration.knobs)
        prediction = simulate(
            calibration, seeds=seeds, warm_up=warm_up, versions=versions,
            from_start=warm_up == before,
        )  # fmt: skip
    return prediction, compare(recorded(report), prediction)


def _warm_up(before: int, knobs: Knobs) -> int:
    """Return how many versions to simulate before the window.

    All of them where they are few. A run that was resumed counts on from where it was, and has not
    made them: then so many that validations and checkpoints fall where they did.

    Worked example: version 1007 of a run that validates every 5 versions: 7 come before.
    """
    if before <= _ALL_BEFORE:
        return before
    every = lcm(knobs.validation_interval or 1, knobs.checkpoint_interval or 1)
    return WARM_UP + (before - WARM_UP) % every


def compare(run: Recorded, prediction: Prediction) -> tuple[Compared, ...]:
    """Return each figure of a recorded run beside its prediction."""
    rows = []
    for name, known in vars(run).items():
        simulated: Estimate = getattr(prediction, name)
        rows.append(Compared(name, known, simulated, _error(name, known, simulated.value)))
    return tuple(rows)


def _error(name: str, known: float | None, simulated: float | None) -> float | None:
    if known is None or simulated is None:
        return None
    if name not in RELATIVE:
        return simulated - known
    return simulated / known - 1 if known else None
