"""Sets of intervals [start_ns, end_ns): union, intersection, and what is covered how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Ints: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.uint32]

#: Room on the integer axis, with a bit to spare for sums.
_AXIS = 1 << 62

EMPTY = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union of the intervals within each group `by`, sorted by group and start.

    Touching intervals become one, a gap of 1 ns stays a gap. Empty and negative intervals
    vanish. Groups are laid end to end on one integer axis, so that one sort and one running
    maximum serve all of them.
    """
    kept = intervals.lazy().select(*by, "start_ns", "end_ns").filter(_LASTS).collect().rechunk()
    if kept.is_empty():
        return kept
    start, end = (kept[column].to_numpy() for column in ("start_ns", "end_ns"))
    origin, width = int(start.min()), int(end.max()) - int(start.min()) + 1
    codes, groups = group_codes(kept, by)
    if groups > 1 and groups * width >= _AXIS:
        return _union_in_halves(kept, by, codes)
    order = time_order(codes, start)
    base = codes * width - origin if groups > 1 else codes
    begins, reach = (base + start)[order], (base + end)[order]
    np.maximum.accumulate(reach, out=reach)
    first = np.flatnonzero(np.append(True, begins[1:] > reach[:-1]))
    last = np.append(first[1:], len(begins)) - 1
    rows = order[first]
    ends = pl.Series(reach[last] - base[rows])
    return kept[rows].select(*by, "start_ns").with_columns(end_ns=ends)


def covered(intervals: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the length of the union within each group: columns `by` and `ns`."""
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    return union(intervals, by).group_by(by).agg(ns=length)


_LASTS = pl.col("start_ns") < pl.col("end_ns")


def time_order(codes: Ints | Codes, times: Ints, *, grouped: bool = False) -> Ints:
    """Return the order of rows by group code, then by time; ties stay as they are.

    Numpy's stable sort is nearly free on what comes in few ascending runs, and on up to 65,536
    different codes, which it counts instead of comparing. So rows that come about in the order
    of time are sorted by time first; `grouped` ones, that come group by group, are sorted by
    one key of both.
    """
    if not len(times):
        return np.empty(0, np.int64)
    groups, origin = int(codes.max()) + 1, int(times.min())
    width = int(times.max()) - origin + 1
    if grouped and groups * width < _AXIS:
        return np.argsort(codes.astype(np.int64) * width + (times - origin), kind="stable")
    if grouped or groups > 1 << 16:
        return np.lexsort((times, codes))
    small = codes.astype(np.uint16)
    if bool((times[1:] >= times[:-1]).all()):
        return np.argsort(small, kind="stable")
    by_time = np.argsort(times, kind="stable")
    order: Ints = by_time[np.argsort(small[by_time], kind="stable")]
    return order


def group_codes(frame: pl.DataFrame, by: Sequence[str]) -> tuple[Ints, int]:
    """Return a number for the group of each row, and a bound above all numbers.

    Groups are numbered in the order of the columns' codes, without gaps while these are few.
    """
    codes: Ints = np.zeros(len(frame), np.int64)
    groups = 1
    for column in by:
        values = frame[column]
        if values.dtype == pl.String:
            values = values.cast(pl.Categorical)
        physical = values.to_physical().cast(pl.Int64).to_numpy()
        count = int(physical.max(initial=0)) + 1
        codes, groups = codes * count + physical, groups * count
    return _dense(codes, groups) if 1 < groups <= _FEW else (codes, groups)


#: Codes up to this are renumbered by a table of all of them.
_FEW = 1 << 22


def _dense(codes: Ints, groups: int) -> tuple[Ints, int]:
    """Renumber codes without gaps, in the same order."""
    occurs = np.zeros(groups, np.int64)
    occurs[codes] = 1
    numbers: Ints = np.cumsum(occurs) - 1
    return numbers[codes], int(numbers[-1]) + 1


def _union_in_halves(kept: pl.DataFrame, by: Sequence[str], codes: Ints) -> pl.DataFrame:
    """Unite half of the groups at a time: all of them do not fit on the integer axis."""
    dense = np.unique(codes, return_inverse=True)[1]
    if dense.max() == 0:
        # One group needs no axis: its times serve as they are.
        return union(kept.select("start_ns", "end_ns")).select(
            *(pl.lit(kept[column][0], kept.schema[column]).alias(column) for column in by),
            "start_ns",
            "end_ns",
        )
    low = dense <= dense.max() // 2
    return pl.concat([union(kept.filter(pl.Series(part)), by) for part in (low, ~low)])


def intersect(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of `first` that `second` covers, as disjoint sorted intervals.

    Worked example: 0-10 and 20-30, cut with 5-25, leave 5-10 and 20-25.
    """
    ours, theirs = union(first.select(*EMPTY.columns)), union(second.select(*EMPTY.columns))
    return union(
        ours.join_where(
            theirs,
            pl.col("start_ns") < pl.col("end_ns_right"),
            pl.col("end_ns") > pl.col("start_ns_right"),
        ).select(
            start_ns=pl.max_horizontal("start_ns", "start_ns_right"),
            end_ns=pl.min_horizontal("end_ns", "end_ns_right"),
        )
    )


def total_ns(intervals: pl.DataFrame) -> int:
    """Return the sum of the lengths in nanoseconds."""
    return int((intervals["end_ns"] - intervals["start_ns"]).sum())


def level(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return how many intervals are active over time, as (start_ns, end_ns, count).

    Only stretches in which the count is not 0 are returned. Worked example: 0-10 and 4-6
    give 0-4: 1, 4-6: 2, 6-10: 1.
    """
    kept = intervals.filter(pl.col("start_ns") < pl.col("end_ns"))
    ends = pl.concat(
        [
            kept.select(ts_ns="start_ns", change=pl.lit(1, pl.Int64)),
            kept.select(ts_ns="end_ns", change=pl.lit(-1, pl.Int64)),
        ]
    )
    steps = ends.group_by("ts_ns").agg(pl.col("change").sum()).sort("ts_ns")
    return steps.select(
        start_ns="ts_ns",
        end_ns=pl.col("ts_ns").shift(-1),
        count=pl.col("change").cum_sum(),
    ).filter((pl.col("count") != 0) & pl.col("end_ns").is_not_null())
