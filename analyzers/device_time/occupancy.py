"""Which record puts which device into which state, and when."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.device_time.states import (
    PAUSED_UNKNOWN,
    STATE_ID,
    STATE_OF_ACTIVITY,
    STATE_OF_PAUSE,
)
from rlinsight.analyzers.tables import Rows, Tables, attr, devices_of, within
from rlinsight.trace.topology import Topology

Window = tuple[int, int]


def device_names(topology: Topology) -> pl.Enum:
    """Return the type of device columns: its codes are places in `topology.devices`."""
    return pl.Enum([device.id for device in topology.devices])


def lane_devices(topology: Topology) -> pl.DataFrame:
    """Return one row (lane, device), both enums, for each device that a lane occupies."""
    pairs = [(lane.id, device) for lane in topology.lanes for device in devices_of(lane, topology)]
    known = pl.DataFrame(pairs, schema={"lane": pl.String, "device": pl.String}, orient="row")
    return known.select(
        pl.col("lane").cast(_lane_names(topology)),
        pl.col("device").cast(device_names(topology), strict=False),
    ).drop_nulls("device")


def _lane_names(topology: Topology) -> pl.Enum:
    return pl.Enum([lane.id for lane in topology.lanes])


def occupancy(tables: Tables, window: Window) -> pl.DataFrame:
    """Return intervals (device, state, start_ns, end_ns) clipped to `window`, unordered.

    `device` is an enum, `state` an index into `states.PRIORITY`. Open intervals reach to the
    window's end. Intervals may overlap; `ledger.sweep` decides between them.
    """
    lane = pl.col("lane").cast(_lane_names(tables.topology), strict=False)
    parts = [*_from_spans(tables, window), _from_requests(tables, window)]
    intervals = pl.concat([part.with_columns(lane) for part in parts])
    placed = (
        intervals.with_columns(pl.col("end_ns").fill_null(window[1]))
        .join(lane_devices(tables.topology).lazy(), on="lane")
        .select("device", "state", "start_ns", "end_ns")
    )
    return clip(placed, window).collect()


def clip(intervals: Rows, window: Window) -> Rows:
    """Return the parts of `intervals` that lie in `window`."""
    start, end = window
    return intervals.with_columns(
        pl.col("start_ns").clip(lower_bound=start),
        pl.col("end_ns").clip(upper_bound=end),
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def _from_spans(tables: Tables, window: Window) -> list[pl.LazyFrame]:
    """Return the states of pauses, which their reasons tell, and those of all other spans."""
    spans = within(tables.spans.lazy(), window, "start_ns", "end_ns")
    paused, activity = pl.col("activity") == "paused", pl.col("activity")
    names = tables.spans["activity"].unique().cast(pl.String).to_list()
    states = {name: state for name in names if (state := _state_of(name)) is not None}
    parts = (
        spans.filter(paused)
        .with_columns(state=_pause_state())
        .filter((pl.col("state") != STATE_ID[PAUSED_UNKNOWN]) | ~_is_on_trainers(tables.topology)),
        spans.filter(activity.is_in(list(states))).with_columns(
            state=pl.when((activity == "validate") & _is_elsewhere(tables))
            .then(pl.lit(STATE_ID["bubble.validation"], pl.UInt8))
            .otherwise(activity.cast(pl.String).replace_strict(states, return_dtype=pl.UInt8))
        ),
    )
    return [part.select("lane", "start_ns", "end_ns", "state") for part in parts]


def _is_elsewhere(tables: Tables) -> pl.Expr:
    """Whether a driver's validation is done by others: its own devices only wait for it.

    That is told by the requests: none of validation on a replica of the driver's devices.
    """
    drivers = [lane.id for lane in tables.topology.lanes if lane.role == "trainer"]
    mine = pl.col("lane").is_in(drivers)
    done = tables.spans.filter((pl.col("activity") == "validate") & mine)
    here = _validation_requests(tables)
    if here is None or done.is_empty():
        return pl.lit(value=False)
    until = pl.col("end_ns").fill_null(tables.end_ns)
    spans = done.select("start_ns", end_ns=until)
    own = spans.join_where(
        here,
        pl.col("start_ns") < pl.col("end_ns_right"),
        pl.col("end_ns") > pl.col("start_ns_right"),
    )
    others = spans.filter(~pl.col("start_ns").is_in(own["start_ns"].implode()))
    return mine & pl.col("start_ns").is_in(others["start_ns"].implode())


def _validation_requests(tables: Tables) -> pl.DataFrame | None:
    """Return validation on the trainer's devices, None where no validation was recorded."""
    all_of_them = tables.requests.filter(pl.col("validate").fill_null(value=False))
    if all_of_them.is_empty():
        return None
    lanes = _on_trainers(tables.topology)
    return all_of_them.filter(pl.col("lane").is_in(lanes)).select(
        start_ns="submit_ns", end_ns=pl.col("end_ns").fill_null(tables.end_ns)
    )


def _is_on_trainers(topology: Topology) -> pl.Expr:
    """Whether a span is of a replica on the trainer's devices.

    Its gate is closed whenever the devices are not lent to it. Without a reason that explains
    nothing: why the devices idle then is told by what the trainer waits for.
    """
    return pl.col("lane").is_in(_on_trainers(topology))


def _on_trainers(topology: Topology) -> list[str]:
    """Return the replicas on the trainer's devices."""
    devices = {device.id for device in topology.devices if device.pool == "trainer"}
    return [lane.id for lane in topology.replicas() if devices & set(lane.devices)]


def _from_requests(tables: Tables, window: Window) -> pl.LazyFrame:
    """A request occupies its replica from its admission: one that is parked at a gate waits."""
    doing = pl.when(pl.col("validate")).then(pl.lit("validate")).otherwise(pl.lit("generate"))
    requests = within(tables.requests.lazy(), window, "submit_ns", "end_ns")
    return requests.join(
        admissions(tables), on=["request_id", "lane", "submit_ns"], how="left"
    ).select(
        "lane",
        pl.coalesce("admitted_ns", "submit_ns").alias("start_ns"),
        "end_ns",
        doing.alias("state").replace_strict(STATE_ID, return_dtype=pl.UInt8),
    )


def admissions(tables: Tables) -> pl.LazyFrame:
    """Return when the gate let each parked request through: (request_id, lane, submit_ns, ...)."""
    gates = tables.markers.lazy().filter(pl.col("kind") == "gate_wait")
    return (
        gates.select("lane", admitted_ns="ts_ns", request_id=attr("request_id"))
        .join(tables.requests.lazy(), on=["request_id", "lane"])
        .filter(
            (pl.col("admitted_ns") >= pl.col("submit_ns"))
            & (pl.col("end_ns").is_null() | (pl.col("admitted_ns") <= pl.col("end_ns")))
        )
        .group_by("request_id", "lane", "submit_ns")
        .agg(pl.col("admitted_ns").max())
    )


def _pause_state() -> pl.Expr:
    states = {reason: STATE_ID[state] for reason, state in STATE_OF_PAUSE.items()}
    return attr("reason").replace_strict(
        states, default=STATE_ID[PAUSED_UNKNOWN], return_dtype=pl.UInt8
    )


def _state_of(activity: str) -> int | None:
    """Return the state that an activity other than a pause puts its devices into, if any."""
    if activity.startswith("other:"):
        return STATE_ID["bubble.driver"]
    state = STATE_OF_ACTIVITY.get(activity)
    return None if state is None else STATE_ID[state]
