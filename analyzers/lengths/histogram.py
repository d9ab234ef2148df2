"""Response lengths counted in bins of equal width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

#: Bins of a histogram, at most.
BINS: Final = 40


@dataclass(frozen=True)
class LengthBin:
    """How many responses have `from_tokens` <= length < `to_tokens`."""

    from_tokens: int
    to_tokens: int
    samples: int


def length_histogram(lengths: pl.Series, bins: int = BINS) -> tuple[LengthBin, ...]:
    """Return known `lengths` (tokens) counted in at most `bins` bins of equal width.

    Lengths are whole, so a bin is a whole number of tokens wide: the smallest width with which
    `bins` bins reach from the shortest to the longest. Empty without a length.

    Worked example: 10, 11, 14 and 19 in 3 bins: ten values, so 4 wide: 10-14, 14-18, 18-22
    hold 2, 1 and 1.
    """
    first, last = lengths.min(), lengths.max()
    if not isinstance(first, int) or not isinstance(last, int):
        return ()
    width = -(-(last - first + 1) // bins)
    counts = dict(((lengths - first) // width).value_counts().iter_rows())
    return tuple(
        LengthBin(first + i * width, first + (i + 1) * width, counts.get(i, 0))
        for i in range((last - first) // width + 1)
    )
