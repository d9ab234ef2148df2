"""Costs beside training and decoding: syncs, switches, validations, checkpoints, lags."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from rlinsight.analyzers.simulate.calibration import MONITOR_S, POLL_S, RESUME_S, Costs
from rlinsight.analyzers.simulate.fit_lags import reward_lag, submit_lags
from rlinsight.analyzers.simulate.fit_training import driver_times
from rlinsight.analyzers.simulate.fit_validations import fit_validations
from rlinsight.analyzers.simulate.fits import (
    Array,
    Fit,
    constrained,
    mean_error,
    of_mean,
    of_median,
    together,
)
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.tables import Tables
from rlinsight.trace.topology import Topology

Window = tuple[int, int]

_ABORT: Final = "other:weight_sync.abort"
#: The quantile of aborts that found nothing queued.
_LOW: Final = 0.25


def fit_costs(
    tables: Tables, steps: pl.DataFrame, window: Window, knobs: Knobs
) -> tuple[Costs, tuple[Fit, ...]]:
    """Return the costs of a run and how well each is known.

    `steps` is the step table of its steady part. Syncs and lags are those in `window`; validations
    and checkpoints are few, so all count.
    """
    driver = driver_spans(tables)
    steady = driver.filter(pl.col("start_ns").is_between(*window))
    switches = _switches(driver, steady, knobs)
    around, requests = fit_validations(tables, driver, knobs, _poll(tables), switches[0].value)
    fits = (
        _sync(_inside_steps(steady, tables.steps)),
        _replica_sync(tables, window),
        of_median("costs.dispatch_s", _seconds(steady, "other:dispatch_prompts")),
        *submit_lags(tables, window, knobs),
        reward_lag(tables, window),
        *driver_times(steps),
        *around,
        *switches,
        of_mean("costs.checkpoint_s", _seconds(driver, "checkpoint")),
        _lost_resumes(tables.markers, tables.topology),
    )
    costs = Costs(
        **{fit.name.removeprefix("costs."): fit.value for fit in fits},
        validation_requests=requests,
        poll_s=_poll(tables),
        resume_s=RESUME_S,
        monitor_s=MONITOR_S,
    )
    return costs, fits


def driver_spans(tables: Tables) -> pl.DataFrame:
    """Return the driver's closed spans with their seconds `s`."""
    lanes = {lane.id for lane in tables.topology.lanes if lane.role == "trainer"}
    closed = tables.spans.filter(pl.col("end_ns").is_not_null())
    return closed.filter(pl.col("lane").cast(pl.String).is_in(list(lanes))).with_columns(
        s=(pl.col("end_ns") - pl.col("start_ns")) / 1e9
    )


def _inside_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    bounds = steps.select(step_start="start_ns", step_end="end_ns").sort("step_start")
    return (
        spans.sort("start_ns")
        .join_asof(bounds, left_on="start_ns", right_on="step_start")
        .filter(pl.col("end_ns") <= pl.col("step_end"))
    )


def _seconds(spans: pl.DataFrame, activity: str) -> Array:
    seconds: Array = spans.filter(pl.col("activity") == activity)["s"].to_numpy()
    return seconds


def _sync(spans: pl.DataFrame) -> Fit:
    """Return the mean time of a sync whose aborts find nothing queued.

    What requests queued inside a replica add to the abort is simulated, so it is taken out.
    """
    syncs, aborts = _seconds(spans, "weight_sync"), _seconds(spans, _ABORT)
    whole = of_mean("costs.sync_s", syncs)
    if not len(syncs) or not len(aborts):
        return whole
    queued = float(aborts.mean() - np.quantile(aborts, _LOW))
    error = together(mean_error(syncs), mean_error(aborts))
    return constrained(whole.name, whole.free - queued, error, len(syncs))


def _replica_sync(tables: Tables, window: Window) -> Fit:
    lanes = [lane.id for lane in tables.topology.replicas("standalone")]
    loads = tables.spans.filter(
        (pl.col("activity") == "weight_sync")
        & pl.col("lane").cast(pl.String).is_in(lanes)
        & pl.col("start_ns").is_between(*window)
        & pl.col("end_ns").is_not_null()
    )
    return of_mean("costs.replica_sync_s", (loads["end_ns"] - loads["start_ns"]).to_numpy() / 1e9)


def _switches(driver: pl.DataFrame, steady: pl.DataFrame, knobs: Knobs) -> tuple[Fit, Fit]:
    """Return the seconds to switch hybrid replicas to rollout and to training.

    Where they share the trainer's devices for good, going to training is abort and sleep, which
    is the end of sampling.
    """
    if knobs.mode not in ("sync", "colocate_async"):
        return (
            of_mean("costs.switch_to_rollout_s", _seconds(driver, "switch_to_rollout")),
            of_mean("costs.switch_to_trainer_s", _seconds(driver, "switch_to_trainer")),
        )
    aborts, sleeps = _seconds(steady, "other:abort"), _seconds(steady, "other:sleep")
    slept = of_mean("costs.switch_to_trainer_s", sleeps)
    if len(aborts):
        free = slept.free + float(np.quantile(aborts, _LOW))
        error = together(slept.error, mean_error(aborts))
        slept = constrained(slept.name, free, error, len(sleeps) + len(aborts))
    return Fit("costs.switch_to_rollout_s", 0.0, 0.0, None, 0), slept


def _poll(tables: Tables) -> float:
    polls = tables.spans.filter(
        (pl.col("activity") == "other:poll") & pl.col("end_ns").is_not_null()
    )
    found = ((polls["end_ns"] - polls["start_ns"]) / 1e9).median()
    return float(found) if isinstance(found, (int, float)) else POLL_S


def _lost_resumes(markers: pl.DataFrame, topology: Topology) -> Fit:
    """Return the share of resumes that were lost: few are seen, so that it is known roughly.

    A run that lost none is taken to lose none: 10 s on a guess would be much. The error is
    that of a share of n trials with half a success and half a failure added.
    """
    rollouters = [lane.id for lane in topology.lanes if lane.role == "rollouter"]
    on = markers.filter(pl.col("lane").cast(pl.String).is_in(rollouters))
    resumed = len(on.filter(pl.col("kind") == "resume"))
    lost = len(on.filter(pl.col("kind") == "lost_resume"))
    name, trials = "costs.lost_resume_share", resumed + lost
    if not lost:
        return Fit(name, 0.0, 0.0, None, 0)
    error = math.sqrt((lost + 0.5) * (resumed + 0.5) / (trials + 1) ** 3)
    return Fit(name, lost / trials, lost / trials, error, trials)
