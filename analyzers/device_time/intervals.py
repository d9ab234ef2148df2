"""Sets of intervals [start_ns, end_ns): union, intersection, and what is covered how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.device_time.blocks import group_blocks, in_parallel

Ints: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.uint32]

#: Room on the integer axis, with a bit to spare for sums.
_AXIS = 1 << 62

EMPTY = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union of the intervals within each group `by`, sorted by group and start.

    Touching intervals become one, a gap of 1 ns stays a gap. Empty and negative intervals
    vanish. The rows of a group are brought together; then blocks of a few groups at a time
    are laid end to end on one integer axis, where one running maximum serves all of them.
    """
    kept = _lasting(intervals.select(*by, "start_ns", "end_ns"))
    if kept.is_empty():
        return kept
    names, (place, begin, finish) = _united(kept, by, _islands)
    bounds = pl.DataFrame({"start_ns": begin, "end_ns": finish})
    return pl.concat([names[place], bounds], how="horizontal") if by else bounds


def _lasting(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals that take time, in one piece of memory."""
    if not intervals.select(_LASTS.all()).item():  # a filter that keeps all would copy all
        intervals = intervals.filter(_LASTS)
    return intervals.rechunk()


def _united(
    kept: pl.DataFrame, by: Sequence[str], made_of: Callable[[Ints, Ints, Ints], tuple[Ints, ...]]
) -> tuple[pl.DataFrame, tuple[Ints, ...]]:
    """Return the groups, and what `made_of` makes of each block of them.

    It gets the group (a row of the first frame; they ascend), start and end of each interval.
    """
    start, end = (kept[column].to_numpy() for column in ("start_ns", "end_ns"))
    codes = group_codes(kept, by)
    order = np.argsort(_counted(codes), kind="stable")
    firsts = run_starts(codes[order])
    sizes = np.diff(np.append(firsts, len(order)))
    width = max(int(start.max()), int(end.max())) - int(start.min()) + 1
    fitting = max(1, _AXIS // width)

    def united(groups: slice, rows: slice) -> tuple[Ints, ...]:
        places = np.repeat(np.arange(groups.start, groups.stop), sizes[groups])
        return made_of(places, start[order[rows]], end[order[rows]])

    made = in_parallel(united, group_blocks(firsts, len(order), fitting))
    return kept[order[firsts]].select(by), made


_LASTS = pl.col("start_ns") < pl.col("end_ns")


def _islands(places: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Unite the intervals of the groups `places`, which ascend: group, start and end of each."""
    origin = int(start.min())
    width = int(end.max()) - origin + 1
    # A single group needs no axis: its times serve as they are.
    base = (
        (places - places[0]) * width - origin if places[0] != places[-1] else np.zeros_like(start)
    )
    begins, reach = base + start, base + end
    if bool((begins[1:] < begins[:-1]).any()):
        order = np.argsort(begins, kind="stable")
        begins, reach = begins[order], reach[order]
    np.maximum.accumulate(reach, out=reach)
    first = np.flatnonzero(np.append(True, begins[1:] > reach[:-1]))
    last = np.append(first[1:], len(begins)) - 1
    # Groups keep their places on the axis, whatever the order within them.
    return places[first], begins[first] - base[first], reach[last] - base[first]


def covered(intervals: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return columns `by`, `count`, `sum_ns` of the lengths, and `ns`, the length of the union.

    The islands are summed up block by block: of millions of rows only the groups are left. An
    interval that ends before it begins counts with its negative length, and covers nothing.
    """
    if intervals.is_empty():
        nothing = pl.lit(0, pl.Int64)
        return intervals.select(by).with_columns(count=nothing, sum_ns=nothing, ns=nothing)
    names, sums = _united(intervals.select(*by, "start_ns", "end_ns").rechunk(), by, _measured)
    columns = zip(("count", "sum_ns", "ns"), sums, strict=True)
    return names.with_columns(pl.Series(name, values) for name, values in columns)


def _measured(places: Ints, start: Ints, end: Ints) -> tuple[Ints, ...]:
    firsts = run_starts(places)
    sums = np.add.reduceat(end - start, firsts)
    place, begin, finish = _islands(places, start, np.maximum(start, end))
    return np.bincount(places - places[0]), sums, np.add.reduceat(finish - begin, run_starts(place))


def group_codes(frame: pl.DataFrame, by: Sequence[str]) -> Codes:
    """Return a number for the group of each row, in the order of the columns' own codes."""
    codes: Codes = np.zeros(len(frame), np.uint32)
    groups = 1
    for column in by:
        values = frame[column]
        if values.dtype == pl.String:
            values = values.cast(pl.Categorical)
        physical = values.to_physical().to_numpy()
        count = int(physical.max(initial=0)) + 1
        if groups * count > _MOST_GROUPS:
            codes, physical = (
                np.unique(c, return_inverse=True)[1].astype(np.uint32) for c in (codes, physical)
            )
            groups, count = int(codes.max(initial=0)) + 1, int(physical.max(initial=0)) + 1
        codes, groups = (codes * np.uint32(count) + physical).astype(np.uint32), groups * count
    return codes


_MOST_GROUPS = 1 << 32


def run_starts(values: Codes | Ints) -> Ints:
    """Return where each run of equal values begins."""
    starts: Ints = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return starts[: len(values)]


def _counted(codes: Codes) -> npt.NDArray[np.unsignedinteger]:
    """Return codes in 16 bits where they fit: numpy counts these instead of comparing them."""
    largest = int(codes.max(initial=0))
    if largest < _DENSE_FROM and largest >= 1 << 16:
        occurs = np.zeros(largest + 1, np.uint32)
        occurs[codes] = 1
        numbers = np.cumsum(occurs, dtype=np.uint32) - 1
        codes, largest = numbers[codes], int(numbers[-1])
    return codes.astype(np.uint16) if largest < 1 << 16 else codes


#: Codes below this are renumbered without gaps by a table of all of them.
_DENSE_FROM = 1 << 22


def ints(values: npt.NDArray[np.intp]) -> Ints:
    """Return an index array under the type that the analyzers use."""
    return values.astype(np.int64, copy=False)


def time_order(codes: Ints | Codes, times: Ints) -> Ints:
    """Return the order of rows by group code, then by time; ties stay as they are.

    Both make one key where they fit on the integer axis. Numpy's stable sort is nearly free on
    rows that come in few ascending runs.
    """
    if not len(times):
        return np.empty(0, np.int64)
    origin = int(times.min())
    width = int(times.max()) - origin + 1
    if (int(codes.max()) + 1) * width >= _AXIS:
        return ints(np.lexsort((times, codes)))
    return ints(np.argsort(codes.astype(np.int64) * width + (times - origin), kind="stable"))


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
    kept = _lasting(intervals.select(*EMPTY.columns))
    ts = np.concatenate([kept["start_ns"], kept["end_ns"]])
    order = np.argsort(ts, kind="stable")
    ts, count = ts[order], np.cumsum(np.repeat([1, -1], len(kept))[order])
    settled = np.flatnonzero(ts[1:] != ts[:-1])  # all that changes at this time has
    active = settled[count[settled] != 0]
    return pl.DataFrame({"start_ns": ts[active], "end_ns": ts[active + 1], "count": count[active]})
