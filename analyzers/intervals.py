"""Sets of intervals [start_ns, end_ns): union, intersection, and what is covered how often."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

EMPTY = pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the union of the intervals within each group `by`, sorted.

    Touching intervals become one, a gap of 1 ns stays a gap. Empty and negative intervals
    vanish.
    """
    kept = intervals.filter(pl.col("start_ns") < pl.col("end_ns")).sort([*by, "start_ns"])
    reach = pl.col("end_ns").cum_max().shift(1)
    reach = reach.over(by) if by else reach
    island = (reach.is_null() | (pl.col("start_ns") > reach)).cum_sum().alias("island")
    return (
        kept.with_columns(island)
        .group_by([*by, "island"], maintain_order=True)
        .agg(pl.col("start_ns").first(), pl.col("end_ns").max())
        .drop("island")
    )


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
