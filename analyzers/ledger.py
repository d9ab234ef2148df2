"""The device-time ledger: every device-nanosecond of a window in exactly one state.

Problem: records overlap (a driver phase around a rank's, requests around a weight sync,
open and duplicated intervals), yet device time must add up. Method: the intervals of each
(device, state) are united; then one pass over all their ends keeps the set of active states
as a bit mask, and the highest-priority bit names the state up to the next end. What no
record covers is `unattributed`.

Worked example: a trainer device over 0-20, with update_actor 2-8, a request 4-12 and
wait_samples 10-20, gives train.update_actor 6, generate 4, bubble.wait_samples 8,
unattributed 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from rlinsight.analyzers.intervals import union
from rlinsight.analyzers.states import PRIORITY, UNATTRIBUTED

Window = tuple[int, int]

#: Columns of the segments that `sweep` returns.
SEGMENTS: Final = {
    "device": pl.String,
    "state": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}


def sweep(intervals: pl.DataFrame, devices: Sequence[str], window: Window) -> pl.DataFrame:
    """Return segments (device, state, start_ns, end_ns) that tile `window` on each device.

    `intervals` has the columns of `occupancy.occupancy`, clipped to `window`.
    """
    if not devices:
        return pl.DataFrame(schema=SEGMENTS)
    ends = _ends(union(intervals, ["device", "state"]), devices, window)
    mask = np.bitwise_xor.accumulate(ends["bit"].to_numpy())
    start, device = ends["ts_ns"].to_numpy(), ends["device"].to_numpy()
    # The next end on the same device closes a segment; a device's last end opens none.
    inside = np.flatnonzero((device[1:] == device[:-1]) & (start[1:] > start[:-1]))
    state = _highest(mask[inside])
    segments = pl.DataFrame(
        {
            "device": device[inside],
            "state": state,
            "start_ns": start[inside],
            "end_ns": start[inside + 1],
        }
    )
    return _named(_joined(segments), devices)


def ledger(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each (device, state) in nanoseconds: columns device, state, ns."""
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    return segments.group_by("device", "state").agg(spent).sort("device", "state")


def _ends(united: pl.DataFrame, devices: Sequence[str], window: Window) -> pl.DataFrame:
    """Return every start and end as (device index, ts_ns, bit of the state that toggles)."""
    index = {device: i for i, device in enumerate(devices)}
    toggles = united.filter(pl.col("device").is_in(list(devices))).select(
        pl.col("device").replace_strict(index, return_dtype=pl.Int32),
        pl.col("start_ns", "end_ns"),
        bit=pl.lit(2, pl.Int64).pow(pl.col("state").cast(pl.Int64)).cast(pl.Int64),
    )
    halves = [
        toggles.select("device", pl.col(column).alias("ts_ns"), "bit")
        for column in ("start_ns", "end_ns")
    ]
    edges = pl.DataFrame(
        [(i, ts, 0) for i in range(len(devices)) for ts in window],
        schema={"device": pl.Int32, "ts_ns": pl.Int64, "bit": pl.Int64},
        orient="row",
    )
    return pl.concat([*halves, edges]).sort("device", "ts_ns")


def _highest(mask: np.ndarray) -> np.ndarray:
    """Return the index of the highest-priority (lowest) bit of each mask, -1 for none."""
    lowest = mask & -mask
    exponent = np.frexp(lowest.astype(np.float64))[1] - 1
    return np.where(mask == 0, -1, exponent).astype(np.int32)


def _joined(segments: pl.DataFrame) -> pl.DataFrame:
    """Join neighbouring segments of one device and state into one."""
    changed = (pl.col("device").diff() != 0) | (pl.col("state").diff() != 0)
    run = changed.fill_null(value=True).cum_sum().alias("run")
    return (
        segments.with_columns(run)
        .group_by("run", maintain_order=True)
        .agg(
            pl.col("device", "state", "start_ns").first(),
            pl.col("end_ns").last(),
        )
        .drop("run")
    )


def _named(segments: pl.DataFrame, devices: Sequence[str]) -> pl.DataFrame:
    states = dict(enumerate(PRIORITY)) | {-1: UNATTRIBUTED}
    return segments.with_columns(
        pl.col("device").replace_strict(dict(enumerate(devices)), return_dtype=pl.String),
        pl.col("state").replace_strict(states, return_dtype=pl.String),
    )
