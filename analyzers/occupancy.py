"""Which record puts which device into which state, and when."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.states import (
    PAUSED_UNKNOWN,
    STATE_ID,
    STATE_OF_ACTIVITY,
    STATE_OF_PAUSE,
)
from rlinsight.trace.reader import Trace
from rlinsight.trace.topology import Topology

Window = tuple[int, int]


def lane_devices(topology: Topology) -> pl.DataFrame:
    """Return one row (lane, device) for each device that a lane occupies."""
    pairs = [(lane.id, device) for lane in topology.lanes for device in lane.devices]
    return pl.DataFrame(pairs, schema={"lane": pl.String, "device": pl.String}, orient="row")


def occupancy(trace: Trace, window: Window) -> pl.DataFrame:
    """Return intervals (device, state, start_ns, end_ns) clipped to `window`, unordered.

    `state` is an index into `states.PRIORITY`. Open intervals reach to the window's end.
    Intervals may overlap; `ledger.sweep` decides between them.
    """
    intervals = pl.concat([_from_spans(trace, window), _from_requests(trace, window)])
    start, end = window
    return (
        intervals.with_columns(
            pl.col("start_ns").clip(lower_bound=start),
            pl.col("end_ns").fill_null(end).clip(upper_bound=end),
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .join(lane_devices(trace.topology).lazy(), on="lane")
        .select("device", "state", "start_ns", "end_ns")
        .collect()
    )


def _from_spans(trace: Trace, window: Window) -> pl.LazyFrame:
    return (
        trace.table("spans", window=window)
        .with_columns(state=_span_state())
        .filter(pl.col("state").is_not_null())
        .select("lane", "start_ns", "end_ns", _state_id())
    )


def _from_requests(trace: Trace, window: Window) -> pl.LazyFrame:
    doing = pl.when(pl.col("validate")).then(pl.lit("validate")).otherwise(pl.lit("generate"))
    return (
        trace.table("requests", window=window)
        .with_columns(state=doing)
        .select("lane", start_ns="submit_ns", end_ns="end_ns", state=_state_id())
    )


def _span_state() -> pl.Expr:
    activity = pl.col("activity")
    paused = attr("reason").replace_strict(
        STATE_OF_PAUSE, default=PAUSED_UNKNOWN, return_dtype=pl.String
    )
    state = activity.replace_strict(STATE_OF_ACTIVITY, default=None, return_dtype=pl.String)
    return pl.when(activity == "paused").then(paused).otherwise(state)


def _state_id() -> pl.Expr:
    return pl.col("state").replace_strict(STATE_ID, return_dtype=pl.UInt8)


def attr(key: str) -> pl.Expr:
    """Return the value of attribute `key`, null where a row does not have it."""
    pair = pl.element()
    value = pl.when(pair.struct.field("key") == key).then(pair.struct.field("value"))
    return pl.col("attrs").list.eval(value.drop_nulls()).list.first()
