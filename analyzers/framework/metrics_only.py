"""What step metrics alone can honestly tell, for imported logs and runs without spans.

Device time, bubbles and their causes cannot be known from step metrics: a phase that a timer
covers may be work or waiting, and what happens on the rollout's devices is not in them. Every
result here says where it comes from. Rows of fully_async are sums over a cycle, shifted by one
update (see `defects`); shares over the whole run are hardly touched by that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from rlinsight.analyzers.framework.breakdown import Breakdown, breakdown
from rlinsight.analyzers.framework.defects import logged

SOURCE = "step metrics only: no device time, no causes"

Finding = Literal["raise_token_budget", "dp_imbalance"]

#: Timers that follow each other inside verl's `timing_s/step`.
_IN_STEP = (
    "gen", "switch_wait", "wait_for_enough_samples", "switch_to_trainer", "switch_to_rollout",
    "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor",
    "update_weights", "timing_s/param_sync", "save_checkpoint",
)  # fmt: skip
#: The fully asynchronous trainer saves behind its step.
_BEHIND_STEP = {"fully_async": ("testing", "save_checkpoint")}
_BEHIND_STEP_ELSE = ("testing",)
#: Timers in which the trainer only waits; `switch_wait` generates on the trainer's devices.
_WAITS = {
    "fully_async": ("gen",),
    "separate_async": ("gen",),
}
_SYNCHRONOUS = frozenset({"sync"})

#: Mean and maximum of the time a trajectory takes, by the keys of verl's trainers.
_GENERATION = (
    ("fully_async/processing_time/avg", "fully_async/processing_time/max"),
    ("timing_s/agent_loop/generate_sequences/mean", "timing_s/agent_loop/generate_sequences/max"),
)
#: Model FLOPs utilization of an update below this says that its micro-batches are small.
LOW_MFU = 0.15
#: More tokens on the fullest rank than this share above the mean cost time.
IMBALANCED = 0.05


@dataclass(frozen=True)
class OutsideRows:
    """Wall time between logged rows that no step covers, seconds, and its known parts."""

    wall_s: float
    outside_s: float
    outside_ratio: float
    known_s: dict[str, float]


@dataclass(frozen=True)
class MetricsOnly:
    """Figures from step metrics; `source` is to be printed with them. None is unknown.

    `long_tail_idle` = 1 - mean / max time of a trajectory: the share of the batch's slot time
    that waits for its longest. `dp_imbalance` = max / mean tokens of the ranks - 1, after
    balancing where verl logs it (`dp_imbalance_before` is the batch as it came).
    """

    mode: str | None
    rows: int
    breakdown: Breakdown | None
    long_tail_idle: float | None
    dp_imbalance: float | None
    dp_imbalance_before: float | None
    mfu: float | None
    findings: tuple[Finding, ...]
    outside: OutsideRows | None
    source: str = SOURCE


def metrics_only(metrics: pl.DataFrame, mode: str | None = None) -> MetricsOnly:
    """Return what the step metrics of a run tell; `mode` is guessed from the keys if not given."""
    mode = mode or guess_mode(metrics)
    imbalance, before = dp_imbalance(metrics), dp_imbalance(metrics, balanced=False)
    mfu = _mean(metrics, "perf/mfu/actor")
    return MetricsOnly(
        mode=mode,
        rows=len(_rows(metrics, "timing_s/step")),
        breakdown=step_breakdown(metrics, mode),
        long_tail_idle=long_tail_idle(metrics),
        dp_imbalance=imbalance,
        dp_imbalance_before=before,
        mfu=mfu,
        findings=update_findings(mfu, imbalance),
        outside=outside_rows(metrics, mode),
    )


def guess_mode(metrics: pl.DataFrame) -> str | None:
    """Return the mode whose keys were logged; sync and colocate_async log the same keys."""
    keys = metrics["key"].unique()
    for mode in ("fully_async", "separate_async"):
        if keys.str.starts_with(f"{mode}/").any():
            return mode
    return None


def step_breakdown(metrics: pl.DataFrame, mode: str | None) -> Breakdown | None:
    """Return the mean step in its phases, None without `timing_s/step`.

    A phase's mean is over all rows with a step: one that a row does not have did not happen in
    it. The wait is known for the asynchronous modes with a rollout of their own only; in the
    others `timing_s/gen` may be generation on the trainer's own devices.
    """
    steps = _rows(metrics, "timing_s/step")
    total = float(steps["value"].sum())
    if steps.is_empty() or not total:
        return None
    behind = _BEHIND_STEP.get(mode or "", _BEHIND_STEP_ELSE)
    sums = {
        phase: _rows(metrics, f"timing_s/{phase}").join(steps, on=["step", "ts_ns"])
        for phase in _IN_STEP
        if phase not in behind
    }
    phases = {
        phase.removeprefix("timing_s/"): float(rows["value"].sum()) / len(steps)
        for phase, rows in sums.items()
        if not rows.is_empty()
    }
    waits = _WAITS.get(mode or "")
    return breakdown(total / len(steps), phases, waits, synchronous=mode in _SYNCHRONOUS)


def long_tail_idle(metrics: pl.DataFrame) -> float | None:
    """Return 1 - mean / max time of a trajectory, mean over rows; None where it is not logged."""
    for mean_key, max_key in _GENERATION:
        both = logged(metrics, mean_key).join(logged(metrics, max_key), on="step")
        shares = both.filter(pl.col("value_right") > 0).select(
            idle=1 - pl.col("value") / pl.col("value_right")
        )
        idle = shares["idle"].mean()
        if isinstance(idle, float):
            return idle
    return None


def dp_imbalance(metrics: pl.DataFrame, *, balanced: bool = True) -> float | None:
    """Return max / mean tokens of the ranks - 1, mean over rows.

    verl logs the mean, and the extremes before and after it balances the batch
    (`balanced_max`). Without the mean, the middle of the extremes stands for it.

    Worked example (verl#5637): 5646 to 6952 tokens are 0.104.
    """
    prefix = "balanced_" if balanced else ""
    low, high, mean = (
        logged(metrics, f"global_seqlen/{name}")
        for name in (f"{prefix}min", f"{prefix}max", "mean")
    )
    if high.is_empty():
        return dp_imbalance(metrics, balanced=False) if balanced else None
    middle = low.join(high, on="step").select(
        "step", value=(pl.col("value") + pl.col("value_right")) / 2
    )
    both = high.join(mean if not mean.is_empty() else middle, on="step")
    found = both.select(pl.col("value") / pl.col("value_right") - 1)["value"].mean()
    return found if isinstance(found, float) else None


def update_findings(mfu: float | None, imbalance: float | None) -> tuple[Finding, ...]:
    """Return what the update could gain, the larger first.

    Worked example (verl#5637): an MFU of 0.064 and an imbalance of 0.104: first more tokens
    per micro-batch, then balance.
    """
    found: list[Finding] = []
    if mfu is not None and mfu < LOW_MFU:
        found.append("raise_token_budget")
    if imbalance is not None and imbalance > IMBALANCED:
        found.append("dp_imbalance")
    return tuple(found)


def outside_rows(metrics: pl.DataFrame, mode: str | None = None) -> OutsideRows | None:
    """Return the wall time between the first and the last logged row that is in no step.

    Needs real times on the rows: None where they do not increase, or with fewer than three.
    The first row's step ended before the first time and is left out.
    """
    rows = _rows(metrics, "timing_s/step")
    if len(rows) < 3 or not (rows["ts_ns"].diff().drop_nulls() > 0).all():
        return None
    wall = (rows["ts_ns"][-1] - rows["ts_ns"][0]) / 1e9
    later = rows[1:]
    outside = wall - float(later["value"].sum())
    behind = _BEHIND_STEP.get(mode or "", _BEHIND_STEP_ELSE)
    known = {
        key: float(part["value"].sum())
        for key in behind
        if not (
            part := _rows(metrics, f"timing_s/{key}").join(later, on=["step", "ts_ns"])
        ).is_empty()
    }
    return OutsideRows(wall, outside, outside / wall, known)


def _rows(metrics: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return every row (step, ts_ns, value) of a metric in order; a step may have two."""
    rows = metrics.filter((pl.col("key") == key) & pl.col("value").is_finite())
    return rows.sort("ts_ns", "step").select("step", "ts_ns", "value")


def _mean(metrics: pl.DataFrame, key: str) -> float | None:
    values = logged(metrics, key)["value"]
    mean = values.filter(values.is_finite()).mean()
    return mean if isinstance(mean, float) else None
