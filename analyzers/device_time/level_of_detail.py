"""Segments at the resolution of a screen, without hiding short ones.

Buckets keep how much of each state they hold and its longest piece, so a state that lasts a
thousandth of a bucket still shows, and no gap is ever drawn over.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

Window = tuple[int, int]


def buckets(
    segments: pl.DataFrame, devices: Sequence[str], window: Window, count: int
) -> pl.DataFrame:
    """Return, per device and bucket, the share of each state.

    `segments` (device, state, start_ns, end_ns) tile `window` on each device; the result
    (device, state, middle_s, width_s, share, below, longest_s) has one row for each state
    that occurs in a bucket. `below` is the sum of the shares of the states before it in the
    bucket, for stacking; the shares of a bucket sum to 1. `longest_s` is the longest piece
    within the bucket.

    Worked example: a window of 10 s in 2 buckets with a: 0-4, b: 4-10 has the shares
    a 0.8, b 0.2 and b 1.0.
    """
    start, end = window
    width = -(-(end - start) // count)
    pieces = _pieces(segments.filter(pl.col("device").is_in(list(devices))), start, width)
    sums = (
        pieces.group_by("device", "bucket", "state")
        .agg(ns=pl.col("ns").sum(), longest_s=pl.col("ns").max() / 1e9)
        .sort("device", "bucket", "state")
    )
    whole = pl.col("ns").sum().over("device", "bucket")
    share = (pl.col("ns") / whole).alias("share")
    middle = (pl.col("bucket") + 0.5) * (width / 1e9)
    return sums.with_columns(share).select(
        "device",
        "state",
        middle.alias("middle_s"),
        pl.lit(width / 1e9).alias("width_s"),
        "share",
        (pl.col("share").cum_sum().over("device", "bucket") - pl.col("share")).alias("below"),
        "longest_s",
    )


def _pieces(segments: pl.DataFrame, start: int, width: int) -> pl.DataFrame:
    """Cut the segments at the bucket edges: (device, state, bucket, ns)."""
    first = (pl.col("start_ns") - start) // width
    last = (pl.col("end_ns") - start - 1) // width
    cut = segments.with_columns(bucket=pl.int_ranges(first, last + 1)).explode("bucket")
    low = pl.max_horizontal("start_ns", start + pl.col("bucket") * width)
    high = pl.min_horizontal("end_ns", start + (pl.col("bucket") + 1) * width)
    return cut.select("device", "state", "bucket", ns=high - low)
