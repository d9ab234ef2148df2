"""How long a prompt takes from hand to hand: to a replica, and from there to a sample."""

from __future__ import annotations

import numpy as np
import polars as pl

from rlinsight.analyzers.simulate.fits import (
    Array,
    Fit,
    constrained,
    median_error,
    of_mean,
    of_median,
    together,
)
from rlinsight.analyzers.simulate.knobs import Knobs
from rlinsight.analyzers.tables import Tables

Window = tuple[int, int]


def submit_lags(tables: Tables, window: Window, knobs: Knobs) -> tuple[Fit, ...]:
    """Return the seconds of the rollouter per prompt, to the first request, and of the client.

    In fully_async a prompt is handed out when the rollouter's active tasks go up, elsewhere when
    a dispatch begins. 0 where neither was recorded.
    """
    asked = tables.requests.filter(~pl.col("validate").fill_null(value=False))
    first = asked.filter(pl.col("attempt").fill_null(1) == 1)
    by_prompt = knobs.mode == "fully_async"
    if by_prompt:
        pairs = _by_task(first, tables.counters)
    else:  # all of a batch are handed out at once, and each request is a task of its own
        dispatches = tables.spans.filter(pl.col("activity") == "other:dispatch_prompts")
        pairs = _latest_before(first, dispatches.select(handed_ns="start_ns"))
    known = pairs.filter(pl.col("handed_ns").is_not_null()).sort("handed_ns", "submit_ns")
    steady = known.filter(pl.col("submit_ns").is_between(*window))
    again = asked.filter(pl.col("attempt") > 1)["submit_ns"].sort()
    size = knobs.group_size
    handout, *rest = client_times(
        _seconds(steady["handed_ns"]), np.sort(_seconds(steady["submit_ns"])),
        _seconds(again) , size, 1.0 if by_prompt else 1 / size,
    )  # fmt: skip
    return (handout, *rest) if by_prompt else tuple(rest)


def client_times(
    handed: Array, arrived: Array, again: Array, size: int, part: float = 1.0
) -> tuple[Fit, Fit, Fit]:
    """Return the rollouter's time per prompt, the lag to a replica, and the client's per prompt.

    `handed` and `arrived` are the seconds of each prompt (or `part` of one), in order; `again`
    those of requests that were asked for again, each a part of a prompt of `size` requests to the
    client. While a prompt is handed out before the one before has arrived, the client is busy: what
    passes between two arrivals is its work on one prompt and on what was asked for again meanwhile
    (mean), and what passes between two hand-outs is the rollouter's (median). The lag is what a
    prompt takes that finds the client idle (median), less its own work.

    Worked example: handed out at 0, 0.1, 0.2 and 9 s, arrived at 1.3, 1.6, 1.9 and 10.3 s: 0.1 s to
    hand out, 0.3 s of the client's, after 1 s.
    """
    before = np.concatenate([[-np.inf], arrived[:-1]])
    queued = before > handed
    spacing = (arrived - before)[queued]
    meanwhile = np.searchsorted(again, arrived) - np.searchsorted(again, before)
    work = part + (meanwhile[queued].mean() / size if queued.any() else 0.0)
    each = of_mean("costs.submit_each_s", spacing / work)
    handout = of_median("costs.handout_s", np.diff(handed)[queued[1:]])
    whole = (arrived - handed)[~queued]
    if not len(whole):
        return handout, Fit("costs.submit_s", 0.0, 0.0, None, 0), each
    error = together(median_error(whole), each.error)
    lag = float(np.median(whole)) - each.value * part
    return handout, constrained("costs.submit_s", lag, error, len(whole)), each


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
