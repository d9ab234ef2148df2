"""Points and landmarks in time: markers, version boundaries, steps and validations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from rlinsight.analyzers.device_time.intervals import union
from rlinsight.webapp.timeline.index import NULL, Array

if TYPE_CHECKING:
    from rlinsight.trace.reader import Trace


def markers(
    rows: pl.DataFrame, lanes: Sequence[str], origin: int
) -> tuple[dict[str, Array], list[str], list[str]]:
    """Return the arrays of the drawn markers, the kinds and the reasons that their codes name.

    A switch of mode names its direction as reason.
    """
    pair = pl.element()
    to = pl.when(pair.struct.field("key") == "to").then(pair.struct.field("value"))
    drawn = rows.filter(
        ~pl.col("kind").is_in(["gate_wait", "validate_begin", "validate_end"])
    ).with_columns(
        reason=pl.coalesce("reason", pl.col("attrs").list.eval(to.drop_nulls()).list.first())
    )
    kinds, kind = _coded(drawn["kind"])
    reasons, reason = _coded(drawn["reason"])
    places = {lane: i for i, lane in enumerate(lanes)}
    lane = drawn["lane"].replace_strict(places, default=-1, return_dtype=pl.Int32)
    return (
        {
            "marker_ts": (drawn["ts_ns"] - origin).to_numpy(),
            "marker_kind": kind,
            "marker_lane": lane.fill_null(-1).to_numpy(),
            "marker_version": drawn["param_version"].fill_null(NULL).to_numpy(),
            "marker_reason": reason,
        },
        kinds,
        reasons,
    )


def _coded(names: pl.Series) -> tuple[list[str], Array]:
    values = [str(name) for name in names.drop_nulls().unique().sort()]
    codes = names.cast(pl.Enum(values)).to_physical().cast(pl.Int32).fill_null(-1)
    return values, codes.to_numpy()


def landmarks(trace: Trace, versions: pl.DataFrame, origin: int, extent: int) -> dict[str, Array]:
    """Return versions, the driver's steps, and when validation ran on the driver's side."""
    drivers = [lane.id for lane in trace.topology.lanes if lane.role in {"trainer", "rollouter"}]
    spans = (
        trace.spans.filter(pl.col("activity").is_in(["step", "validate"]))
        .select(
            "activity",
            "lane",
            "step",
            start_ns="start_ns",
            end_ns=pl.col("end_ns").fill_null(origin + extent),
        )
        .collect()
    )
    steps = spans.filter(pl.col("activity") == "step").sort("start_ns")
    validated = union(
        spans.filter((pl.col("activity") == "validate") & pl.col("lane").is_in(drivers))
    )
    return {
        "version_number": versions["version"].to_numpy(),
        "version_start": (versions["start_ns"] - origin).to_numpy(),
        "step_number": steps["step"].fill_null(NULL).to_numpy(),
        "step_start": (steps["start_ns"] - origin).to_numpy(),
        "step_end": (steps["end_ns"] - origin).to_numpy(),
        "validation_start": (validated["start_ns"] - origin).to_numpy(),
        "validation_end": (validated["end_ns"] - origin).to_numpy(),
    }
