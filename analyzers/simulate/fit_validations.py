"""What a validation takes around its generation, and how long one is as a whole."""

from __future__ import annotations

import numpy as np
import polars as pl

from rlinsight.analyzers.simulate.fits import Array, Fit, of_mean
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.tables import Tables


def fit_validations(
    tables: Tables, driver: pl.DataFrame, knobs: Knobs, poll_s: float, switch_s: float
) -> tuple[tuple[Fit, Fit], int]:
    """Return the seconds before and after the generation of a validation, and its requests.

    `driver` holds the driver's closed spans with their seconds `s`.
    """
    each = _each(tables, driver)
    before = ((each["first"] - each["began"]) / 1e9).to_numpy()
    if knobs.mode == "separate_async":
        before = before - switch_s
    if knobs.mode == "fully_async":
        after = ((each["ended"] - each["last"]) / 1e9).to_numpy()
    else:  # the end is noticed at a poll
        generated = ((each["last"] - each["first"]) / 1e9).to_numpy()
        after = ((each["ended"] - each["first"]) / 1e9).to_numpy() - _rounded_up(generated, poll_s)
    requests = each["requests"].median()
    fits = of_mean("costs.validation_before_s", before), of_mean("costs.validation_after_s", after)
    return fits, int(requests) if isinstance(requests, (int, float)) else 0


def _each(tables: Tables, driver: pl.DataFrame) -> pl.DataFrame:
    """Return one row a validation: when it began and ended, its first and last request.

    The first one, which holds what is done only once, is left out where there are more.
    """
    spans = driver.filter(pl.col("activity") == "validate").sort("start_ns")
    asked = tables.requests.filter(pl.col("validate") & pl.col("end_ns").is_not_null())
    inside = asked.sort("submit_ns").join_asof(
        spans.select(began="start_ns", ended="end_ns"), left_on="submit_ns", right_on="began"
    )
    each = (
        inside.filter(pl.col("submit_ns") <= pl.col("ended"))
        .group_by("began", "ended")
        .agg(
            first=pl.col("submit_ns").min(), last=pl.col("end_ns").max(),
            requests=pl.col("sample_uid").n_unique(),
        )
        .sort("began")
    )  # fmt: skip
    return each[1:] if len(each) > 1 else each


def validation_seconds(driver: pl.DataFrame) -> Array:
    """Return the durations of the validations, without the first where there are more."""
    spans: Array = driver.filter(pl.col("activity") == "validate").sort("start_ns")["s"].to_numpy()
    return spans[1:] if len(spans) > 1 else spans


def _rounded_up(seconds: Array, poll_s: float) -> Array:
    polled: Array = np.ceil(seconds / poll_s) * poll_s
    return polled
