"""Costs beside training and decoding: syncs, switches, validations, checkpoints, lags."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.simulate.calibration import MONITOR_S, POLL_S, RESUME_S, Costs
from rlinsight.analyzers.simulate.fit_lags import reward_lag, submit_lag
from rlinsight.analyzers.simulate.fit_training import driver_times
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.tables import Tables
from rlinsight.trace.topology import Topology

Window = tuple[int, int]

_ABORT = "other:weight_sync.abort"


def fit_costs(tables: Tables, steps: pl.DataFrame, window: Window, knobs: Knobs) -> Costs:
    """Return the costs of a run; `steps` is the step table of its steady part.

    Syncs and lags are those in `window`; validations and checkpoints are few, so all count.
    """
    driver = _driver(tables)
    steady = driver.filter(pl.col("start_ns").is_between(*window))
    in_steps = _inside_steps(steady, tables.steps)
    update_s, step_s = driver_times(steps)
    switches = _switches(tables, steady, knobs)
    before_s, after_s, requests = _validations(tables, driver, knobs, switches[0])
    return Costs(
        sync_s=_sync(in_steps),
        replica_sync_s=_replica_sync(tables, window),
        dispatch_s=_median(steady, "other:dispatch_prompts"),
        submit_s=submit_lag(tables, window, knobs),
        reward_s=reward_lag(tables, window),
        driver_update_s=update_s,
        driver_step_s=step_s,
        validation_before_s=before_s,
        validation_after_s=after_s,
        validation_requests=requests,
        switch_to_rollout_s=switches[0],
        switch_to_trainer_s=switches[1],
        checkpoint_s=_mean(driver, "checkpoint"),
        poll_s=_poll(tables),
        resume_s=RESUME_S,
        monitor_s=MONITOR_S,
        lost_resume_share=_lost_resumes(tables.markers, tables.topology),
    )


def _driver(tables: Tables) -> pl.DataFrame:
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


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _mean(spans: pl.DataFrame, activity: str) -> float:
    return _number(spans.filter(pl.col("activity") == activity)["s"].mean())


def _sync(spans: pl.DataFrame) -> float:
    """Return the mean time of a sync whose aborts find nothing queued.

    What requests queued inside a replica add to the abort is simulated, so it is taken out.
    """
    return max(0.0, _mean(spans, "weight_sync") - _mean(spans, _ABORT) + _low(spans, _ABORT))


def _low(spans: pl.DataFrame, activity: str) -> float:
    return _number(spans.filter(pl.col("activity") == activity)["s"].quantile(0.25))


def _median(spans: pl.DataFrame, activity: str) -> float:
    return _number(spans.filter(pl.col("activity") == activity)["s"].median())


def _replica_sync(tables: Tables, window: Window) -> float:
    lanes = [lane.id for lane in tables.topology.replicas("standalone")]
    loads = tables.spans.filter(
        (pl.col("activity") == "weight_sync")
        & pl.col("lane").cast(pl.String).is_in(lanes)
        & pl.col("start_ns").is_between(*window)
    )
    return _number(((loads["end_ns"] - loads["start_ns"]) / 1e9).mean())


def _switches(tables: Tables, steady: pl.DataFrame, knobs: Knobs) -> tuple[float, float]:
    """Return the seconds to switch hybrid replicas to rollout and to training.

    Where they share the trainer's devices for good, going to training is abort and sleep, which
    is the end of sampling.
    """
    if knobs.mode in ("sync", "colocate_async"):
        return 0.0, _low(steady, "other:abort") + _mean(steady, "other:sleep")
    driver = _driver(tables)
    return _mean(driver, "switch_to_rollout"), _mean(driver, "switch_to_trainer")


def _validations(
    tables: Tables, driver: pl.DataFrame, knobs: Knobs, switch_s: float
) -> tuple[float, float, int]:
    """Return the seconds before and after the generation of a validation, and its requests."""
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
    )  # fmt: skip
    if each.is_empty():
        return 0.0, 0.0, 0
    each = each.sort("began")
    each = each[1:] if len(each) > 1 else each  # the first holds what is done only once
    before = _number(((each["first"] - each["began"]) / 1e9).mean())
    if knobs.mode == "fully_async":
        after = _number(((each["ended"] - each["last"]) / 1e9).mean())
    else:
        polled = _rounded_up((each["last"] - each["first"]) / 1e9, _poll(tables))
        after = _number(((each["ended"] - each["first"]) / 1e9 - polled).mean())
        before -= switch_s if knobs.mode == "separate_async" else 0.0
    return max(0.0, before), max(0.0, after), int(_number(each["requests"].median()))


def validation_seconds(tables: Tables) -> float | None:
    """Return the mean duration of a validation, the first left out where there are more."""
    spans = _driver(tables).filter(pl.col("activity") == "validate").sort("start_ns")["s"]
    return _number(spans[1:].mean() if len(spans) > 1 else spans.mean()) if len(spans) else None


def _rounded_up(seconds: pl.Series, poll_s: float) -> pl.Series:
    return (seconds / poll_s).ceil() * poll_s


def _poll(tables: Tables) -> float:
    polls = tables.spans.filter(
        (pl.col("activity") == "other:poll") & pl.col("end_ns").is_not_null()
    )
    found = ((polls["end_ns"] - polls["start_ns"]) / 1e9).median()
    return POLL_S if found is None else _number(found)


def _lost_resumes(markers: pl.DataFrame, topology: Topology) -> float:
    rollouters = [lane.id for lane in topology.lanes if lane.role == "rollouter"]
    on = markers.filter(pl.col("lane").cast(pl.String).is_in(rollouters))
    resumed = len(on.filter(pl.col("kind") == "resume"))
    lost = len(on.filter(pl.col("kind") == "lost_resume"))
    return lost / (resumed + lost) if resumed + lost else 0.0
