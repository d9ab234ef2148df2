"""Known defects of the framework's own figures (verl 0.9.1), named where they occur.

A reader who compares two numbers that should agree and do not must be told which of them is
wrong, with the numbers that show it. Nothing here changes a figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from rlinsight.analyzers.tables import attr

_GLOBAL_STEP, _STEP_S = "training/global_step", "timing_s/step"
#: Sums agree with a row within this share of it.
_SAME = 0.01


DefectName = Literal[
    "rows_shifted",
    "last_update_lost",
    "sum_called_max",
    "one_pause_only",
    "lost_resume",
    "ratio_outside_unit",
    "older_than_run",
    "constant_value",
    "poll_quantised",
]


@dataclass(frozen=True)
class Defect:
    """One known defect, where it was seen (a metric's key or a lane) and what shows it.

    `steps` are the logged steps concerned; `reference` is a public thread about this defect,
    None where there is none (docs/analysis.md names the place in verl's source).
    """

    name: DefectName
    where: str
    told: str
    steps: tuple[int, ...]
    evidence: dict[str, float | str]
    reference: str | None = None


def logged(metrics: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return (step, value) of a metric, one row a step (the first logged), in order.

    fully_async logs what is left at the end once more under the last step.
    """
    rows = metrics.filter((pl.col("key") == key) & pl.col("step").is_not_null())
    return (
        rows.sort("step", "ts_ns")
        .group_by("step", maintain_order=True)
        .agg(pl.col("value").first())
    )


def updates_per_row(metrics: pl.DataFrame) -> int | None:
    """Return how many local updates a logged row stands for, None where it cannot be told."""
    steps = logged(metrics, _GLOBAL_STEP)
    distance = (steps["value"].diff() / steps["step"].diff()).median()
    return round(distance) if isinstance(distance, float) and distance >= 1 else None


def shifted_rows(metrics: pl.DataFrame, spans: pl.DataFrame) -> Defect | None:
    """Return the defect that rows are aggregated over a window shifted by one local update.

    fully_async aggregates and resets before it adds the current update, so row k holds the
    last update of cycle k - 1 and all but the last of cycle k. It shows in the row itself:
    after version k the trainer has made k x n updates, and the row says k x n - 1. With the
    recorded steps, a row's `timing_s/step` is compared with both sums.

    Worked example: n = 2, row 2 says global step 3; updates 2 and 3 took 1.2 + 0.3 s, the
    cycle's 3 and 4 took 0.3 + 2.0 s, and the row says 1.5 s: shifted by one.
    """
    rows, count = logged(metrics, _GLOBAL_STEP), updates_per_row(metrics)
    if count is None or len(rows) < 2:
        return None
    behind = (rows["step"] * count - rows["value"]).unique()
    if len(behind) != 1 or behind[0] <= 0:
        return None
    shift = int(behind[0])
    evidence: dict[str, float | str] = {"updates_per_row": count, "shift_updates": shift}
    evidence |= _sums(metrics, spans, count, shift)
    told = f"row k ends {shift} update(s) before version k does (rows of {count} updates)"
    if "rows_equal_shifted_sum" in evidence:
        told += (
            f"; `timing_s/step` equals the shifted sum of the recorded steps in "
            f"{evidence['rows_equal_shifted_sum']} rows, the cycle's in "
            f"{evidence['rows_equal_cycle_sum']}, of {evidence['rows_compared']}"
        )
    return Defect("rows_shifted", _STEP_S, told, tuple(rows["step"].to_list()), evidence)


def _sums(metrics: pl.DataFrame, spans: pl.DataFrame, count: int, shift: int) -> dict[str, float]:
    """Compare rows with the sums of recorded steps; empty where no row can be compared."""
    seconds = step_seconds(spans)
    rows = dict(logged(metrics, _STEP_S).iter_rows())
    both, shifted, cycle = 0, 0, 0
    for row, value in rows.items():
        last = row * count
        groups = [range(last - count + 1 - by, last + 1 - by) for by in (shift, 0)]
        if not all(step in seconds for group in groups for step in group):
            continue
        sums = [sum(seconds[step] for step in group) for group in groups]
        both += 1
        shifted += abs(sums[0] - value) <= _SAME * value
        cycle += abs(sums[1] - value) <= _SAME * value
    if not both:
        return {}
    return {
        "rows_compared": both,
        "rows_equal_shifted_sum": shifted,
        "rows_equal_cycle_sum": cycle,
    }


def step_seconds(spans: pl.DataFrame) -> dict[int, float]:
    """Return the duration in seconds of each numbered, closed `step` that did not fail."""
    steps = spans.filter(
        (pl.col("activity") == "step")
        & pl.col("end_ns").is_not_null()
        & pl.col("step").is_not_null()
    ).filter(attr("error").is_null())
    sums = steps.group_by("step").agg(s=(pl.col("end_ns") - pl.col("start_ns")).sum() / 1e9)
    return dict(sums.iter_rows())


def lost_last_updates(metrics: pl.DataFrame, spans: pl.DataFrame) -> Defect | None:
    """Return the defect that the last updates of a run that ended were never logged.

    fully_async does not log what remains in its aggregator when the last version was
    validated. A step that failed, such as the last one that finds no more samples, is no
    update.

    Worked example: steps 1 to 12 ended, the last row says global step 11: the metrics of one
    update are lost.
    """
    rows = metrics.filter((pl.col("key") == _GLOBAL_STEP) & pl.col("value").is_finite())
    seconds = step_seconds(spans)
    if rows.is_empty() or not seconds:
        return None
    last_logged, last = int(rows["value"].sort()[-1]), max(seconds)
    lost = [step for step in seconds if step > last_logged]
    if not lost:
        return None
    told = f"{len(lost)} update(s) ended after the last logged one, {last_logged} of {last}"
    evidence: dict[str, float | str] = {
        "last_logged_step": last_logged,
        "last_step": last,
        "lost_s": sum(seconds[step] for step in lost),
    }
    return Defect("last_update_lost", _GLOBAL_STEP, told, tuple(sorted(lost)), evidence)


def sums_called_max(metrics: pl.DataFrame) -> tuple[Defect, ...]:
    """Return the keys named max, min or mean that are sums over the updates of a row.

    verl's aggregator sums every key with `timing_s/` in it, also
    `timing_s/agent_loop/<what>/max`; only tool calls are exempt. With one update a row a sum
    is right, so this needs rows of several.

    Worked example: rows of 4 updates, `timing_s/agent_loop/generate_sequences/max` 31 s: the
    sum of four maxima; the largest of them lies between 7.75 s and 31 s.
    """
    count = updates_per_row(metrics)
    if count is None or count < 2 or not _is_fully_async(metrics):
        return ()
    named = metrics.filter(
        pl.col("key").str.contains(r"timing_s/.*/(max|min|mean)$")
        & ~pl.col("key").str.contains("/tool_calls/")
    )
    return tuple(
        _summed(part, count)
        for part in named.sort("key", "step").partition_by("key", maintain_order=True)
    )


def _summed(part: pl.DataFrame, count: int) -> Defect:
    key, largest = part["key"][0], float(np.nanmax(part["value"].to_numpy()))
    told = (
        f"`{key}` is a sum over {count} updates; its largest value, {largest:.2f} s, stands for "
        f"between {largest / count:.2f} and {largest:.2f} s"
    )
    steps = tuple(part["step"].drop_nulls().to_list())
    evidence: dict[str, float | str] = {"updates_per_row": count, "largest": largest}
    return Defect("sum_called_max", key, told, steps, evidence)


def _is_fully_async(metrics: pl.DataFrame) -> bool:
    return bool(metrics["key"].str.starts_with("fully_async/").any())
