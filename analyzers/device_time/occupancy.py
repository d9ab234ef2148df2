"""Which record puts which device into which state, and when."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.device_time.states import (
    PAUSED_UNKNOWN,
    STATE_ID,
    STATE_OF_ACTIVITY,
    STATE_OF_PAUSE,
)
from rlinsight.analyzers.tables import Tables, attr, devices_of, within
from rlinsight.trace.topology import Topology

Window = tuple[int, int]


def lane_devices(topology: Topology) -> pl.DataFrame:
    """Return one row (lane, device) for each device that a lane occupies."""
    pairs = [(lane.id, device) for lane in topology.lanes for device in devices_of(lane, topology)]
    return pl.DataFrame(pairs, schema={"lane": pl.String, "device": pl.String}, orient="row")


def occupancy(tables: Tables, window: Window) -> pl.DataFrame:
    """Return intervals (device, state, start_ns, end_ns) clipped to `window`, unordered.

    `state` is an index into `states.PRIORITY`. Open intervals reach to the window's end.
    Intervals may overlap; `ledger.sweep` decides between them.
    """
    intervals = pl.concat([_from_spans(tables, window), _from_requests(tables, window)])
    placed = (
        intervals.with_columns(pl.col("end_ns").fill_null(window[1]))
        .join(lane_devices(tables.topology).lazy(), on="lane")
        .select("device", "state", "start_ns", "end_ns")
        .collect()
    )
    return clip(placed, window)


def clip(intervals: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Return the parts of `intervals` that lie in `window`."""
    start, end = window
    return intervals.with_columns(
        pl.col("start_ns").clip(lower_bound=start),
        pl.col("end_ns").clip(upper_bound=end),
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def _from_spans(tables: Tables, window: Window) -> pl.LazyFrame:
    return (
        within(tables.spans.lazy(), window, "start_ns", "end_ns")
        .with_columns(state=_span_state())
        .filter(pl.col("state").is_not_null())
        .select(
            "lane",
            "start_ns",
            "end_ns",
            pl.col("state").replace_strict(STATE_ID, return_dtype=pl.UInt8),
        )
    )


def _from_requests(tables: Tables, window: Window) -> pl.LazyFrame:
    """A request occupies its replica from its admission: one that is parked at a gate waits."""
    doing = pl.when(pl.col("validate")).then(pl.lit("validate")).otherwise(pl.lit("generate"))
    requests = within(tables.requests.lazy(), window, "submit_ns", "end_ns")
    return requests.join(
        _admissions(tables), on=["request_id", "lane", "submit_ns"], how="left"
    ).select(
        "lane",
        pl.coalesce("admitted_ns", "submit_ns").alias("start_ns"),
        "end_ns",
        doing.alias("state").replace_strict(STATE_ID, return_dtype=pl.UInt8),
    )


def _admissions(tables: Tables) -> pl.LazyFrame:
    """Return when the gate let each parked request through: (request_id, lane, submit_ns, ...)."""
    gates = tables.markers.lazy().filter(pl.col("kind") == "gate_wait")
    return (
        gates.select("lane", admitted_ns="ts_ns", request_id=attr("request_id"))
        .join(tables.requests.lazy(), on=["request_id", "lane"])
        .filter(pl.col("admitted_ns").is_between(pl.col("submit_ns"), pl.col("end_ns")))
        .group_by("request_id", "lane", "submit_ns")
        .agg(pl.col("admitted_ns").max())
    )


def _span_state() -> pl.Expr:
    activity = pl.col("activity")
    paused = attr("reason").replace_strict(
        STATE_OF_PAUSE, default=PAUSED_UNKNOWN, return_dtype=pl.String
    )
    state = activity.replace_strict(STATE_OF_ACTIVITY, default=None, return_dtype=pl.String)
    other = pl.when(activity.str.starts_with("other:")).then(pl.lit("bubble.driver"))
    return pl.when(activity == "paused").then(paused).otherwise(pl.coalesce(state, other))
