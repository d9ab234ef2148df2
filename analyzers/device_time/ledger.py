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

from rlinsight.analyzers.device_time.intervals import Ints, union
from rlinsight.analyzers.device_time.states import PRIORITY, STATES

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

    `intervals` has the columns of `occupancy.occupancy`, clipped to `window`. Device and
    state are enums: there may be millions of segments.
    """
    united = union(_numbered(intervals, devices), ["device", "state"])
    device, ts, bit = _ends(united, len(devices), window)
    mask = np.bitwise_xor.accumulate(bit)
    # The next end on the same device closes a segment; a device's last end opens none.
    inside = np.flatnonzero((device[1:] == device[:-1]) & (ts[1:] > ts[:-1]))
    state = _highest(mask[inside])
    kept = _run_starts(device[inside], state)
    ends = ts[inside + 1]
    return pl.DataFrame(
        {
            "device": _enum(device[inside][kept], devices),
            "state": _enum(state[kept], STATES),
            "start_ns": ts[inside][kept],
            "end_ns": ends[np.append(kept[1:], len(inside)) - 1] if len(inside) else ends,
        }
    )


def ledger(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each (device, state) in nanoseconds: columns device, state, ns."""
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    table = segments.group_by("device", "state").agg(spent)
    return table.cast({"device": pl.String, "state": pl.String}).sort("device", "state")


def _numbered(intervals: pl.DataFrame, devices: Sequence[str]) -> pl.DataFrame:
    index = {device: i for i, device in enumerate(devices)}
    number = pl.col("device").replace_strict(index, default=None, return_dtype=pl.Int64)
    return intervals.with_columns(number).filter(pl.col("device").is_not_null())


def _ends(united: pl.DataFrame, devices: int, window: Window) -> tuple[Ints, Ints, Ints]:
    """Return every start and end, in order: device, time, and the bit that toggles there."""
    number = united["device"].to_numpy()
    bit = np.left_shift(1, united["state"].cast(pl.Int64).to_numpy())
    edges = np.repeat(np.arange(devices, dtype=np.int64), 2)
    device = np.concatenate([number, number, edges])
    starts, ends = united["start_ns"].to_numpy(), united["end_ns"].to_numpy()
    ts = np.concatenate([starts, ends, np.tile(np.asarray(window, np.int64), devices)])
    toggles = np.concatenate([bit, bit, np.zeros(len(edges), np.int64)])
    order = np.lexsort((ts, device))
    return device[order], ts[order], toggles[order]


def _highest(mask: Ints) -> Ints:
    """Return the index of the highest-priority (lowest) bit of each mask, the last for none."""
    exponent = np.frexp((mask & -mask).astype(np.float64))[1] - 1
    return np.where(mask == 0, len(PRIORITY), exponent).astype(np.int64)


def _run_starts(device: Ints, state: Ints) -> Ints:
    """Return where a run of neighbouring segments of one device and state begins."""
    if not len(device):
        return np.zeros(0, np.int64)
    changed = (device[1:] != device[:-1]) | (state[1:] != state[:-1])
    return np.flatnonzero(np.append(True, changed))


def _enum(codes: Ints, names: Sequence[str]) -> pl.Series:
    values = pl.Series(list(names), dtype=pl.Enum(list(names)))
    return values.gather(pl.Series(codes, dtype=pl.Int64))
