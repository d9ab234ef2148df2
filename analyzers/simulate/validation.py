"""Predictions of one calibration held against runs of other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlinsight.analyzers.result import Estimate
from rlinsight.analyzers.simulate.calibration import Calibration
from rlinsight.analyzers.simulate.knobs import KNOB_NAMES, Knobs
from rlinsight.analyzers.simulate.predict import SEEDS, simulate
from rlinsight.analyzers.simulate.reproduce import Recorded, compare

#: Throughputs this close are those of one setting, recorded twice on the same machine.
SAME_RUN = 0.02


@dataclass(frozen=True)
class Row:
    """One run: what differs from the calibrated one, and each figure recorded and predicted.

    `throughput_error` is relative, `wait_error` a difference of shares of the wall time.
    """

    run: str
    changes: dict[str, object]
    throughput: float | None
    predicted: Estimate
    throughput_error: float | None
    wait_share: float | None
    predicted_wait: Estimate
    wait_error: float | None
    within: bool | None


@dataclass(frozen=True)
class Validation:
    """All rows, with the errors of throughput in summary.

    `same_order` is the share of pairs of runs whose order by throughput was predicted, of those
    that differ by more than `SAME_RUN`.
    """

    rows: tuple[Row, ...]
    median_error: float | None
    worst_error: float | None
    worst_wait_error: float | None
    same_order: float | None


def check_run(
    run: str,
    calibration: Calibration,
    measured: Recorded,
    knobs: Knobs,
    window: tuple[int, int],
    seeds: Sequence[int] = SEEDS,
) -> Row:
    """Predict one run from its setting alone and compare.

    `window` holds the versions before the measured ones, and those measured.
    """
    warm_up, versions = window
    prediction = simulate(
        calibration, knobs, seeds=seeds, warm_up=warm_up, versions=versions, from_start=True
    )
    by_name = {row.figure: row for row in compare(measured, prediction)}
    rate, wait = by_name["tokens_per_s_per_device"], by_name["trainer_wait_share"]
    return Row(
        run=run,
        changes=differences(calibration.knobs, knobs),
        throughput=rate.recorded,
        predicted=rate.simulated,
        throughput_error=rate.error,
        wait_share=wait.recorded,
        predicted_wait=wait.simulated,
        wait_error=wait.error,
        within=_within(rate.recorded, rate.simulated),
    )


def summarize(rows: Sequence[Row]) -> Validation:
    """Return the rows with their summary; unknown errors are left out of it."""
    errors = [abs(row.throughput_error) for row in rows if row.throughput_error is not None]
    waits = [abs(row.wait_error) for row in rows if row.wait_error is not None]
    return Validation(
        rows=tuple(rows),
        median_error=float(np.median(errors)) if errors else None,
        worst_error=max(errors, default=None),
        worst_wait_error=max(waits, default=None),
        same_order=_same_order(rows),
    )


def differences(old: Knobs, new: Knobs) -> dict[str, object]:
    """Return the knobs of `new` that differ from `old`."""
    return {
        name: getattr(new, name) for name in KNOB_NAMES if getattr(new, name) != getattr(old, name)
    }


def _within(value: float | None, estimate: Estimate) -> bool | None:
    if value is None or estimate.low is None or estimate.high is None:
        return None
    return estimate.low <= value <= estimate.high


def _same_order(rows: Sequence[Row]) -> float | None:
    """Return the share of pairs in the same order; pairs that are as good as equal are left out."""
    known = [
        (row.throughput, row.predicted.value)
        for row in rows
        if row.throughput is not None and row.predicted.value is not None
    ]
    pairs = [
        (a[0] - b[0]) * (a[1] - b[1]) > 0
        for i, a in enumerate(known)
        for b in known[:i]
        if abs(a[0] - b[0]) > SAME_RUN * max(a[0], b[0])
    ]
    return sum(pairs) / len(pairs) if pairs else None
