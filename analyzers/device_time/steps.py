"""Training steps of the driver, and time per activity and role."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.device_time.intervals import covered
from rlinsight.analyzers.device_time.trained import tokens_of_all
from rlinsight.analyzers.result import ActivityTime, StepRow
from rlinsight.analyzers.tables import training_steps, within
from rlinsight.trace.topology import Topology

_NS = 1e9


def activity_times(
    spans: pl.DataFrame, topology: Topology, end_ns: int, window: tuple[int, int]
) -> list[ActivityTime]:
    """Return the time of each activity per lane role; overlapping spans of a lane count once.

    An open span reaches to `end_ns`. `mean_s` is over closed spans. Worked example of
    `span_seconds_in_window`: two spans of a lane over 0-10 and 5-15, window 8-20: 2 + 7 s.
    """
    roles = {lane.id: lane.role for lane in topology.lanes}
    role = pl.col("lane").cast(pl.String).replace_strict(
        roles, default="other", return_dtype=pl.String
    )  # fmt: skip
    by = ["role", "activity"]
    table = (
        _per_lane(spans, end_ns)
        .join(_in_window(spans, end_ns, window), on=["lane", "activity"], how="left")
        .with_columns(pl.col("activity").cast(pl.String), role=role)
        .group_by(by)
        .agg(
            lanes=pl.len(),
            spans=pl.col("spans").sum(),
            open_spans=pl.col("open_spans").sum(),
            lane_seconds=pl.col("busy_ns").sum() / _NS,
            mean_s=pl.when(pl.col("closed").sum() > 0).then(
                pl.col("closed_ns").sum() / pl.col("closed").sum() / _NS
            ),
            span_seconds_in_window=pl.col("inside_ns").sum() / _NS,
        )
        .sort("role", "lane_seconds", "activity", descending=[False, True, False])
    )
    return [ActivityTime(**row) for row in table.iter_rows(named=True)]


def _in_window(spans: pl.DataFrame, end_ns: int, window: tuple[int, int]) -> pl.DataFrame:
    """Return the nanoseconds of each (lane, activity) that lie in `window`, summed over spans."""
    start = pl.col("start_ns").clip(lower_bound=window[0])
    end = pl.col("end_ns").fill_null(end_ns).clip(upper_bound=window[1])
    rows = within(spans, window, "start_ns", "end_ns").select(
        "lane", "activity", inside_ns=(end - start).clip(lower_bound=0)
    )
    return rows.group_by("lane", "activity").agg(pl.col("inside_ns").sum())


def _per_lane(spans: pl.DataFrame, end_ns: int) -> pl.DataFrame:
    """Return counts and nanoseconds of each (lane, activity): names are compared only here."""
    by = ["lane", "activity"]
    ends = pl.col("end_ns").fill_null(end_ns)
    every = covered(spans.select(*by, "start_ns", ends), by)
    opened = spans.filter(pl.col("end_ns").is_null()).group_by(by)
    still = opened.agg(open_spans=pl.len(), open_ns=(ends - pl.col("start_ns")).sum())
    unfinished = pl.col("open_spans", "open_ns").fill_null(0)
    return (
        every.join(still, on=by, how="left")
        .with_columns(unfinished)
        .select(
            *by,
            "open_spans",
            spans="count",
            closed=pl.col("count") - pl.col("open_spans"),
            closed_ns=pl.col("sum_ns") - pl.col("open_ns"),
            busy_ns="ns",
        )
    )


def step_rows(spans: pl.DataFrame, samples: pl.DataFrame) -> list[StepRow]:
    """Return the driver's steps in order, with the time of each activity that began in one."""
    steps = training_steps(spans)
    if steps.is_empty():
        return []
    inside = _phases_in_steps(spans, steps)
    trained = _trained(samples)
    return [
        StepRow(
            step=row["step"],
            param_version=row["param_version"],
            start_ns=row["start_ns"],
            duration_s=(row["end_ns"] - row["start_ns"]) / _NS,
            activities=inside.get(row["start_ns"], {}),
            tokens=trained.get(row["step"], (None, None))[0],
            samples=trained.get(row["step"], (None, None))[1],
        )
        for row in steps.iter_rows(named=True)
    ]


def _phases_in_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> dict[int, dict[str, float]]:
    driver = steps["lane"].unique()
    phases = spans.filter(
        pl.col("lane").is_in(driver.implode())
        & (pl.col("activity") != "step")
        & pl.col("end_ns").is_not_null()
    ).sort("start_ns")
    bounds = steps.select(step_start="start_ns", step_end="end_ns", lane="lane")
    matched = phases.join_asof(
        bounds,
        left_on="start_ns",
        right_on="step_start",
        by="lane",
        coalesce=False,
        check_sortedness=False,
    ).filter(pl.col("start_ns") < pl.col("step_end"))
    sums = matched.group_by("step_start", "activity").agg(
        s=(pl.col("end_ns") - pl.col("start_ns")).sum() / _NS
    )
    found: dict[int, dict[str, float]] = {}
    for start, activity, seconds in sums.sort("step_start", "activity").iter_rows():
        found.setdefault(start, {})[activity] = seconds
    return found


def _trained(samples: pl.DataFrame) -> dict[int, tuple[int | None, int]]:
    """Return step -> (tokens, samples); tokens as in `tokens_of_all`."""
    tokens = pl.col("prompt_tokens") + pl.col("response_tokens")
    table = (
        samples.filter((pl.col("fate") == "trained") & pl.col("trained_step").is_not_null())
        .group_by("trained_step")
        .agg(tokens=tokens.sum(), known=tokens.count(), samples=pl.len())
    )
    return {
        step: (tokens_of_all(known_tokens, known, count), count)
        for step, known_tokens, known, count in table.iter_rows()
    }
