"""Joining tables by the ids of requests and trajectories."""

from __future__ import annotations

import polars as pl


def key(column: str) -> pl.Expr:
    """Return a 64-bit number that stands for a text id, null where there is none.

    Joining and grouping millions of ids is 10 times as fast on these. Two of 2 million ids
    have the same number with a probability of 1e-7.
    """
    return pl.when(pl.col(column).is_not_null()).then(pl.col(column).hash())
