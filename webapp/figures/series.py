"""Long series, thinned for drawing without losing their extremes."""

from __future__ import annotations

from typing import Final

import polars as pl

#: Points drawn of one series, at most.
MAX_POINTS: Final = 2000


def thinned(series: pl.DataFrame, most: int = MAX_POINTS) -> pl.DataFrame:
    """Return rows of (`x`, `y`), sorted by x: of each stretch the lowest and the highest."""
    if series.height <= most:
        return series
    size = -(-2 * series.height // most)
    numbered = series.with_row_index("i").with_columns(part=pl.col("i") // size)
    ends = numbered.group_by("part").agg(
        low=pl.col("i").get(pl.col("y").arg_min()), high=pl.col("i").get(pl.col("y").arg_max())
    )
    wanted = pl.concat([ends["low"].alias("i"), ends["high"].alias("i")]).unique().sort()
    return numbered.filter(pl.col("i").is_in(wanted.implode())).select(series.columns)
