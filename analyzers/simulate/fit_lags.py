"""How long a prompt takes from hand to hand: to a replica, and from there to a sample."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.simulate.fits import Array, Fit, of_median
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.tables import Tables

Window = tuple[int, int]


def submit_lag(tables: Tables, window: Window, knobs: Knobs) -> Fit:
    """Return the median seconds from handing out a prompt to its first request at a replica.

    In fully_async a prompt is handed out when the rollouter's active tasks go up, elsewhere when
    a dispatch begins. 0 where neither was recorded.
    """
    first = tables.requests.filter(
        ~pl.col("validate").fill_null(value=False) & (pl.col("attempt").fill_null(1) == 1)
    )
    if knobs.mode == "fully_async":
        pairs = _by_task(first, tables.counters)
    else:
        dispatches = tables.spans.filter(pl.col("activity") == "other:dispatch_prompts")
        pairs = _latest_before(first, dispatches.select(handed_ns="start_ns"))
    steady = pairs.filter(pl.col("submit_ns").is_between(*window))
    return of_median("costs.submit_s", _seconds(steady["submit_ns"] - steady["handed_ns"]))


def reward_lag(tables: Tables, window: Window) -> Fit:
    """Return the median seconds from a response to its sample."""
    ends = (
        tables.requests.filter(pl.col("end_ns").is_between(*window))
        .group_by("sample_uid")
        .agg(pl.col("end_ns").max())
    )
    made = tables.samples.filter(pl.col("produced_ns").is_not_null()).join(ends, on="sample_uid")
    return of_median("costs.reward_s", _seconds(made["produced_ns"] - made["end_ns"]))


def _by_task(requests: pl.DataFrame, counters: pl.DataFrame) -> pl.DataFrame:
    """Pair the k-th task with the k-th prompt; where some were not seen, by the latest before."""
    group = pl.col("sample_uid").str.replace(r"/[^/]*$", "")
    prompts = requests.group_by(group.alias("group")).agg(pl.col("submit_ns").min())
    prompts = prompts.sort("submit_ns")
    tasks = counters.filter(pl.col("name").cast(pl.String) == "active_tasks").sort("ts_ns")
    started = (
        tasks.with_columns(more=pl.col("value").diff().fill_null(pl.col("value")).cast(pl.Int64))
        .filter(pl.col("more") > 0)
        .select(handed_ns=pl.col("ts_ns").repeat_by("more"))
        .explode("handed_ns")
    )
    if len(started) == len(prompts):
        return pl.concat([prompts, started], how="horizontal")
    return _latest_before(prompts, started)


def _latest_before(requests: pl.DataFrame, handed: pl.DataFrame) -> pl.DataFrame:
    return requests.sort("submit_ns").join_asof(
        handed.sort("handed_ns"), left_on="submit_ns", right_on="handed_ns"
    )


def _seconds(lags_ns: pl.Series) -> Array:
    seconds: Array = lags_ns.drop_nulls().to_numpy() / 1e9
    return seconds
