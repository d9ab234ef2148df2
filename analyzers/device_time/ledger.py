"""The device-time ledger: every device-nanosecond of a window in exactly one state.

Problem: records overlap (a driver phase around a rank's, requests around a weight sync,
open and duplicated intervals), yet device time must add up. Method: one pass over all starts
and ends on a device counts what is active of each state; the active state of the highest
priority names the stretch up to the next start or end. What no record covers is
`unattributed`.

Worked example: a trainer device over 0-20, with update_actor 2-8, a request 4-12 and
wait_samples 10-20, gives train.update_actor 6, generate 4, bubble.wait_samples 8,
unattributed 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.device_time.blocks import group_blocks, in_parallel
from rlinsight.analyzers.device_time.intervals import Codes, Ints, run_starts, time_order
from rlinsight.analyzers.device_time.states import PRIORITY, STATES

Changes = npt.NDArray[np.int8]
Window = tuple[int, int]


def sweep(intervals: pl.DataFrame, devices: Sequence[str], window: Window) -> pl.DataFrame:
    """Return segments (device, state, start_ns, end_ns) that tile `window` on each device.

    `intervals` has the columns of `occupancy.occupancy`, clipped to `window`. Device and
    state are enums: there may be millions of segments.
    """
    if not devices:
        codes, times = np.empty(0, np.uint32), np.empty(0, np.int64)
        return _frame(devices, codes, codes, times, times)
    number, *columns = (column.to_numpy() for column in _numbered(intervals, devices))
    order = np.argsort(number, kind="stable")
    firsts = np.searchsorted(number[order], np.arange(len(devices)))

    def segments(those: slice, rows: slice) -> tuple[Codes | Ints, ...]:
        mine = order[rows]
        held = (number[mine], *(column[mine] for column in columns))
        return _segments(*_ends(held, range(len(devices))[those], window))

    return _frame(devices, *in_parallel(segments, group_blocks(firsts, len(order), len(devices))))


def _frame(
    devices: Sequence[str], device: Codes, state: Codes, start: Ints, end: Ints
) -> pl.DataFrame:
    names = {"device": _enum(device, devices), "state": _enum(state, STATES)}
    return pl.DataFrame({**names, "start_ns": start, "end_ns": end})


def ledger(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each (device, state) in nanoseconds: columns device, state, ns."""
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    table = segments.group_by("device", "state").agg(spent)
    return table.cast({"device": pl.String, "state": pl.String}).sort("device", "state")


def _numbered(intervals: pl.DataFrame, devices: Sequence[str]) -> list[pl.Series]:
    """Return device (its place in `devices`), state, start and end; other devices are left out."""
    names = intervals["device"].cast(pl.Enum(list(devices)), strict=False)
    # Numpy counts numbers of 16 bits where it would compare longer ones.
    kind = pl.UInt16 if len(devices) < 1 << 16 else pl.UInt32
    numbered = intervals.select(names.to_physical().cast(kind), "state", "start_ns", "end_ns")
    return (numbered.drop_nulls("device") if names.null_count() else numbered).get_columns()


def _ends(
    held: Sequence[npt.NDArray[Any]], devices: Sequence[int], window: Window
) -> tuple[Codes, Ints, Codes, Changes]:
    """Return every start and end, in order: device, time, state, and the change of its count.

    The ends of the window on each device are among them, and change nothing.
    """
    number, state, start, end = held
    edges = np.repeat(np.asarray(devices, np.uint32), 2)
    device = np.concatenate([number, number, edges])
    ts = np.concatenate([start, end, np.tile(np.asarray(window, np.int64), len(devices))])
    states = np.concatenate([state, state, np.zeros(len(edges), state.dtype)])
    change = np.repeat(np.array([1, -1, 0], np.int8), [len(start), len(end), len(edges)])
    order = time_order(device, ts)
    return device[order], ts[order], states[order], change[order]


def _segments(
    device: Codes, ts: Ints, states: Codes, change: Changes
) -> tuple[Codes, Codes, Ints, Ints]:
    """Return device, state, start and end of each stretch between the ordered ends."""
    # The next end on the same device closes a segment; a device's last end opens none.
    inside = np.flatnonzero((device[1:] == device[:-1]) & (ts[1:] > ts[:-1]))
    top, device, ends = _highest(states, change)[inside], device[inside], ts[inside + 1]
    kept = run_starts(device * np.uint32(len(STATES)) + top)
    last = np.append(kept[1:], len(inside))[: len(kept)] - 1
    return device[kept], top[kept], ts[inside[kept]], ends[last]


def _highest(states: Codes, change: Changes) -> Codes:
    """Return the active state of the highest priority behind each change, the last for none.

    Changes come device by device and sum to 0 on each, so that one running sum serves all.
    """
    top = np.full(len(states), len(PRIORITY), np.uint32)
    for state in np.unique(states)[::-1]:
        active = np.cumsum(change * (states == state), dtype=np.int32) > 0
        np.copyto(top, np.uint32(state), where=active)
    return top


def _enum(codes: Codes, names: Sequence[str]) -> pl.Series:
    values = pl.Series(list(names), dtype=pl.Enum(list(names)))
    return values.gather(pl.Series(codes))
