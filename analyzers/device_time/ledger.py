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

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.device_time.blocks import group_blocks, in_parallel
from rlinsight.analyzers.device_time.intervals import Codes, Ints, run_starts, time_order, union
from rlinsight.analyzers.device_time.states import PRIORITY, STATES

Bits = npt.NDArray[np.int32]
Window = tuple[int, int]


def sweep(intervals: pl.DataFrame, devices: Sequence[str], window: Window) -> pl.DataFrame:
    """Return segments (device, state, start_ns, end_ns) that tile `window` on each device.

    `intervals` has the columns of `occupancy.occupancy`, clipped to `window`. Device and
    state are enums: there may be millions of segments.
    """
    united = union(_numbered(intervals, devices), ["device", "state"])
    number = united["device"].to_numpy()
    firsts = np.searchsorted(number, np.arange(len(devices)))

    def segments(those: slice, rows: slice) -> tuple[Codes | Ints, ...]:
        return _segments(*_ends(united[rows], range(len(devices))[those], window))

    blocks = group_blocks(firsts, len(united), len(devices))
    if not blocks:
        return pl.DataFrame(
            schema={
                "device": pl.Enum([]),
                "state": pl.Enum(STATES),
                "start_ns": pl.Int64,
                "end_ns": pl.Int64,
            }
        )
    device, state, start, end = in_parallel(segments, blocks)
    return pl.DataFrame(
        {
            "device": _enum(device, devices),
            "state": _enum(state, STATES),
            "start_ns": start,
            "end_ns": end,
        }
    )


def ledger(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the time of each (device, state) in nanoseconds: columns device, state, ns."""
    spent = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    table = segments.group_by("device", "state").agg(spent)
    return table.cast({"device": pl.String, "state": pl.String}).sort("device", "state")


def _numbered(intervals: pl.DataFrame, devices: Sequence[str]) -> pl.DataFrame:
    names = intervals["device"].cast(pl.Enum(list(devices)), strict=False)
    numbered = intervals.with_columns(names.to_physical().alias("device"))
    return numbered.drop_nulls("device") if names.null_count() else numbered


def _ends(united: pl.DataFrame, devices: Sequence[int], window: Window) -> tuple[Codes, Ints, Bits]:
    """Return every start and end, in order: device, time, and the bit that toggles there.

    The ends of the window on each device are among them, and toggle nothing.
    """
    size, total = 2 * len(united), 2 * len(united) + 2 * len(devices)
    device, ts = np.empty(total, np.uint32), np.empty(total, np.int64)
    toggled = np.zeros(total, np.int32)
    bits = np.left_shift(1, united["state"].to_numpy(), dtype=np.int32)
    # Start, end, start, end: ascending within each device and state, as sorting likes it.
    for first, column in enumerate(("start_ns", "end_ns")):
        device[first:size:2], toggled[first:size:2] = united["device"].to_numpy(), bits
        ts[first:size:2] = united[column].to_numpy()
    device[size:], ts[size:] = np.repeat(devices, 2), np.tile(window, len(devices))
    order = time_order(device, ts)
    return device[order], ts[order], toggled[order]


def _segments(device: Codes, ts: Ints, toggled: Bits) -> tuple[Codes, Codes, Ints, Ints]:
    """Return device, state, start and end of each stretch between the ordered ends."""
    mask = np.bitwise_xor.accumulate(toggled)
    # The next end on the same device closes a segment; a device's last end opens none.
    inside = np.flatnonzero((device[1:] == device[:-1]) & (ts[1:] > ts[:-1]))
    state, device, ends = _highest(mask[inside]), device[inside], ts[inside + 1]
    kept = run_starts(device * np.uint32(len(STATES)) + state)
    last = np.append(kept[1:], len(inside)) - 1 if len(inside) else kept
    return device[kept], state[kept], ts[inside[kept]], ends[last]


def _highest(mask: Bits) -> Codes:
    """Return the index of the highest-priority (lowest) bit of each mask, the last for none."""
    exponent = np.frexp((mask & -mask).astype(np.float32))[1] - 1
    return np.where(mask == 0, len(PRIORITY), exponent).astype(np.uint32)


def _enum(codes: Codes, names: Sequence[str]) -> pl.Series:
    values = pl.Series(list(names), dtype=pl.Enum(list(names)))
    return values.gather(pl.Series(codes))
