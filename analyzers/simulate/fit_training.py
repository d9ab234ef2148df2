"""Training time against tokens, and the driver's own time, from the driver's spans."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.simulate.calibration import Training
from rlinsight.analyzers.simulate.fit import explained, non_negative, standard_error
from rlinsight.analyzers.simulate.fits import (
    Fit,
    constrained,
    finite,
    linear_errors,
    mean_error,
    of_median,
)
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.simulate.pace import micro_batches

Array = npt.NDArray[np.float64]

TRAINING: Final = (
    "update_actor", "update_critic", "old_log_prob", "ref_log_prob", "values", "advantage",
    "reward",
)  # fmt: skip
#: What a step does beside training and its own bookkeeping.
ACCOUNTED: Final = (
    *TRAINING, "wait_samples", "weight_sync", "checkpoint", "switch_to_rollout",
    "switch_to_trainer", "other:dispatch_prompts", "other:switch_wait",
)  # fmt: skip
#: Outside of the step span.
_BETWEEN: Final = ("validate", "checkpoint")


def step_table(spans: pl.DataFrame, steps: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Return one row a step: duration_s, gap_s, updates, tokens, and seconds per activity.

    `gap_s` is from its end to the next step's start, without validation and checkpoint.
    """
    lane = steps["lane"][0]
    driver = spans.filter((pl.col("lane") == lane) & pl.col("end_ns").is_not_null())
    inside = _nested(driver, steps)
    seconds = (
        inside.group_by("step_start", "activity")
        .agg(s=pl.col("s").sum())
        .pivot(on="activity", index="step_start", values="s")
    )
    updates = (
        inside.filter(pl.col("activity") == "update_actor")
        .group_by("step_start")
        .agg(updates=pl.len())
    )
    number = steps.select(
        step_start="start_ns",
        step=pl.col("step"),
        duration_s=(pl.col("end_ns") - pl.col("start_ns")) / 1e9,
        gap_s=(pl.col("start_ns").shift(-1) - pl.col("end_ns")) / 1e9,
        step_end="end_ns",
    )
    table = number.join(seconds, on="step_start", how="left").join(
        updates, on="step_start", how="left"
    )
    return _without_between(table, driver).join(_tokens(samples), on="step", how="left")


def _nested(driver: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the driver's spans inside of a step, with the step's start and their seconds."""
    starts = steps.select(step_start="start_ns", step_end="end_ns").sort("step_start")
    return (
        driver.filter(pl.col("activity") != "step")
        .sort("start_ns")
        .join_asof(starts, left_on="start_ns", right_on="step_start")
        .filter(pl.col("end_ns") <= pl.col("step_end") + 1)
        .select(
            "step_start",
            pl.col("activity").cast(pl.String),
            s=(pl.col("end_ns") - pl.col("start_ns")) / 1e9,
        )
    )


def _without_between(table: pl.DataFrame, driver: pl.DataFrame) -> pl.DataFrame:
    between = (
        driver.filter(pl.col("activity").is_in(_BETWEEN))
        .sort("start_ns")
        .join_asof(table.select("step_end").sort("step_end"), left_on="start_ns",
                   right_on="step_end")
        .group_by("step_end")
        .agg(between_s=((pl.col("end_ns") - pl.col("start_ns")) / 1e9).sum())
    )  # fmt: skip
    joined = table.join(between, on="step_end", how="left")
    return joined.with_columns(gap_s=pl.col("gap_s") - pl.col("between_s").fill_null(0.0)).drop(
        "between_s"
    )


def _tokens(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the tokens of each step; samples of unknown length are as long as its others."""
    tokens = pl.col("prompt_tokens") + pl.col("response_tokens")
    trained = samples.filter((pl.col("fate") == "trained") & pl.col("trained_step").is_not_null())
    return trained.group_by(step="trained_step").agg(
        tokens=pl.when(tokens.is_null().any())
        .then(tokens.mean() * pl.len())
        .otherwise(tokens.sum())
    )


def seconds_of(table: pl.DataFrame, activities: tuple[str, ...]) -> Array:
    """Return the seconds that each step spent in these activities."""
    present = [name for name in activities if name in table.columns]
    if not present:
        return np.zeros(len(table))
    total: Array = (
        table.select(pl.sum_horizontal(pl.col(present).fill_null(0.0))).to_series().to_numpy()
    )
    return total


def fit_training(
    table: pl.DataFrame, knobs: Knobs
) -> tuple[Training, float, tuple[Fit, ...]] | None:
    """Return training time per update, its relative standard error, and how well it fits.

    None without steps.

    seconds of a step = optimizer steps x fixed_s + micro-batches x per_micro_batch_s + tokens x
    per_token_s, non-negative least squares. Where all steps made the same number of
    micro-batches the two constants cannot be told apart: each gets half.
    """
    known = table.filter(pl.col("tokens").is_not_null() & pl.col("updates").is_not_null())
    if known.is_empty():
        return None
    tokens = known["tokens"].to_numpy().astype(np.float64)
    updates = known["updates"].to_numpy().astype(np.float64)
    seconds = seconds_of(known, TRAINING)
    per_update = tokens / updates
    micro = updates * np.array([micro_batches(knobs, share) for share in per_update], dtype=float)
    apart = len(set((micro / updates).tolist())) > 1
    optimizer = updates * knobs.optimizer_steps
    columns = [optimizer, tokens, micro] if apart else [optimizer, tokens]
    found = non_negative(columns, seconds)
    fixed, per_token, *rest = found
    per_micro = float(rest[0]) if rest else 0.0
    if not apart and micro.any():
        fixed, per_micro = fixed / 2, float(fixed / 2 * optimizer[0] / micro[0])
    fitted = optimizer * fixed + micro * per_micro + tokens * per_token
    ratios = seconds / fitted
    training = Training(
        fixed_s=float(fixed),
        per_token_s=float(per_token),
        per_micro_batch_s=per_micro,
        residuals=tuple(ratios.tolist()),
        tokens=(float(per_update.min()), float(per_update.max())),
        r2=explained(seconds, fitted),
        updates=int(updates.sum()),
    )
    return training, standard_error(ratios), _fits(columns, seconds, found)


def _fits(columns: list[Array], seconds: Array, found: Array) -> tuple[Fit, ...]:
    """Return the coefficients beside those of a fit that is free to be negative."""
    matrix = np.column_stack(columns)
    free, *_ = np.linalg.lstsq(matrix, seconds, rcond=None)
    errors = linear_errors(matrix, seconds - matrix @ free)
    known = np.where(np.isfinite(errors), free, found)
    names = ("fixed_s", "per_token_s", "per_micro_batch_s")
    return tuple(
        Fit(f"training.{name}", float(value), float(estimate), finite(float(error)), len(seconds))
        for name, value, estimate, error in zip(names, found, known, errors, strict=False)
    )


def driver_times(table: pl.DataFrame) -> tuple[Fit, Fit]:
    """Return the driver's own seconds per update inside a step, and between two steps."""
    known = table.filter(pl.col("updates").is_not_null())
    updates = known["updates"].to_numpy().astype(np.float64)
    own = known["duration_s"].to_numpy() - seconds_of(known, ACCOUNTED)
    inside = constrained(
        "costs.driver_update_s", float(own.sum() / updates.sum()), mean_error(own / updates),
        len(own),
    )  # fmt: skip
    return inside, of_median("costs.driver_step_s", table["gap_s"].drop_nulls().to_numpy())
