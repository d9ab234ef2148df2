"""What a validation takes around its generation, and how long one is as a whole."""

from __future__ import annotations

import numpy as np
import polars as pl

from rlinsight.analyzers.simulate.fits import Array, Fit, constrained, of_mean
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.tables import Tables


def fit_validations(
    tables: Tables, driver: pl.DataFrame, knobs: Knobs, poll_s: float, switch_s: float
) -> tuple[tuple[Fit, ...], int]:
    """Return the seconds around the generation of a validation, and its requests.

    `driver` holds the driver's closed spans with their seconds `s`. In fully_async, what is outside
    of the rollouter's own span is lending the trainer's devices and taking them back, where they
    are lent.
    """
    each = _each(tables, driver)
    inner = _of_rollouter(tables, each)
    if knobs.mode == "fully_async" and not inner.is_empty():
        each = inner
    first, last = each["first"].to_numpy() / 1e9, each["last"].to_numpy() / 1e9
    began, ended = each["began"].to_numpy() / 1e9, each["ended"].to_numpy() / 1e9
    lends: tuple[Fit, ...] = ()
    if knobs.mode == "fully_async":
        if knobs.trainer_validates and not inner.is_empty():
            from_s, to_s = inner["from_ns"].to_numpy() / 1e9, inner["to_ns"].to_numpy() / 1e9
            lends = (
                of_mean("costs.lend_before_s", from_s - began),
                of_mean("costs.lend_after_s", ended - to_s),
            )
            began, ended = from_s, to_s
        before, after = first - began, ended - last
    else:  # the end is noticed at a poll
        before = first - began - (switch_s if knobs.mode == "separate_async" else 0.0)
        after = ended - first - np.ceil((last - first) / poll_s) * poll_s
    requests = each["requests"].median()
    fits: tuple[Fit, ...] = (
        of_mean("costs.validation_before_s", before),
        of_mean("costs.validation_after_s", after),
    )
    if knobs.mode == "fully_async":  # elsewhere polls make one validation differ from another
        fits = (*fits, _first(driver))
    fits = (*fits, *lends)
    return fits, int(requests) if isinstance(requests, (int, float)) else 0


def _first(driver: pl.DataFrame) -> Fit:
    """Return how much longer the first validation takes than the others, where there are any."""
    name = "costs.validation_first_s"
    spans = driver.filter(pl.col("activity") == "validate").sort("start_ns")["s"].to_numpy()
    if len(spans) < 2:
        return Fit(name, 0.0, 0.0, None, 0)
    return constrained(name, float(spans[0] - spans[1:].mean()), None, 1)


def _of_rollouter(tables: Tables, each: pl.DataFrame) -> pl.DataFrame:
    """Return the validations whose part of the rollouter was recorded, with `from_ns`, `to_ns`.

    That of a validation at the run's end never ends.
    """
    lanes = [lane.id for lane in tables.topology.lanes if lane.role == "rollouter"]
    spans = tables.spans.filter(
        (pl.col("activity") == "validate")
        & pl.col("lane").cast(pl.String).is_in(lanes)
        & pl.col("end_ns").is_not_null()
    ).sort("start_ns")
    return each.join_asof(
        spans.select(from_ns="start_ns", to_ns="end_ns"), left_on="first", right_on="from_ns"
    ).filter(pl.col("to_ns") >= pl.col("last"))


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


def validation_seconds(driver: pl.DataFrame, steps: pl.DataFrame) -> Array:
    """Return the durations of the validations before the last step.

    Without the first, where there are more; one after the last step has the replicas to itself.
    """
    spans = driver.filter(pl.col("activity") == "validate").sort("start_ns")
    within = spans.filter(pl.col("end_ns") <= steps["start_ns"].max())
    seconds: Array = (spans if within.is_empty() else within)["s"].to_numpy()
    return seconds[1:] if len(seconds) > 1 else seconds
