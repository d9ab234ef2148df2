"""Idle segments of devices as bubbles: those that overlap and share owner and cause are one."""

from __future__ import annotations

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.intervals import group_codes, union
from rlinsight.analyzers.device_time.pools import POOL_NAMES
from rlinsight.analyzers.device_time.states import STATES, cause_of, kind
from rlinsight.trace.topology import Topology

#: What bubbles that are one have in common.
_SIDE = ["owner", "cause"]


def idle_segments(segments: pl.DataFrame, topology: Topology) -> pl.DataFrame:
    """Return the segments in which a device idles, with their `owner` and `cause`, as enums."""
    causes = {state: cause_of(state) for state in STATES if kind(state) == "bubble"}
    idle = segments.filter(pl.col("state").is_in(list(causes)))
    return idle.select(
        "device",
        _mapped(idle["device"], _owners(topology)).alias("owner"),
        _mapped(idle["state"], causes).alias("cause"),
        "start_ns",
        "end_ns",
    )


def merged_bubbles(idle: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the bubbles of `idle` segments, and `idle` with the number of each one's `bubble`.

    Bubbles have the columns bubble, owner, cause, start_ns, end_ns and device_ns.
    """
    whole = union(idle, _SIDE)
    numbered = idle.with_columns(bubble=_containing(idle, whole))
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    sums = numbered.group_by("bubble").agg(device_ns=length).sort("bubble")
    return whole.with_columns(sums["bubble"], sums["device_ns"]), numbered


def _owners(topology: Topology) -> dict[str, str]:
    return {device.id: POOL_NAMES[device.pool] for device in topology.devices}


def _mapped(names: pl.Series, table: dict[str, str]) -> pl.Series:
    """Return `table` looked up by an enum column, as an enum: there may be millions of rows."""
    values = list(dict.fromkeys(table.values()))
    assert isinstance(names.dtype, pl.Enum)
    lookup = [values.index(table[name]) if name in table else 0 for name in names.dtype.categories]
    codes = np.asarray(lookup, np.uint32)[names.to_physical().to_numpy()]
    return pl.Series(values, dtype=pl.Enum(values)).gather(pl.Series(codes))


def _containing(idle: pl.DataFrame, whole: pl.DataFrame) -> pl.Series:
    """Return, for each idle segment, the row of `whole` (sorted by group and start) it lies in."""
    codes = group_codes(pl.concat([frame.select(_SIDE) for frame in (whole, idle)]), _SIDE)
    of_whole, of_idle = codes[: len(whole)], codes[len(whole) :]
    number = np.empty(len(idle), np.uint32)
    for code in np.unique(of_whole):
        first, end = np.searchsorted(of_whole, [code, code + 1])
        mine = np.flatnonzero(of_idle == code)
        starts = idle["start_ns"].gather(pl.Series(mine)).to_numpy()
        found = whole["start_ns"][int(first) : int(end)].to_numpy().searchsorted(starts, "right")
        number[mine] = first + found - 1
    return pl.Series(number)
