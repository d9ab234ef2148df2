"""Work on millions of rows in blocks: small enough for the cache, and for all cores at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: A range of groups, and the rows of them.
Block = tuple[slice, slice]

#: About so many rows a block; its arrays then stay in the cache and are never given back.
ROWS = 1 << 17


def group_blocks(firsts: npt.NDArray[np.int64], rows: int, most: int) -> list[Block]:
    """Divide groups into blocks of about `ROWS` rows and at most `most` groups.

    Group g begins at row `firsts[g]` and ends where the next begins, the last one at `rows`.

    Worked example: with 100 rows a block, groups that begin at rows 0, 60, 90 and 250 of 300 make
    the blocks of groups 0-1, 2 and 3.
    """
    bounds = np.append(firsts, rows)
    blocks, first = [], 0
    while first < len(firsts):
        full = int(np.searchsorted(bounds, bounds[first] + ROWS, side="right")) - 1
        end = min(max(full, first + 1), first + most, len(firsts))
        blocks.append((slice(first, end), slice(int(bounds[first]), int(bounds[end]))))
        first = end
    return blocks


def in_parallel(
    work: Callable[[slice, slice], tuple[Array, ...]], blocks: Sequence[Block]
) -> tuple[Array, ...]:
    """Return what `work` makes of each block, joined; blocks are worked on by all cores."""
    cores = os.cpu_count() or 1
    if len(blocks) < 2 or cores < 2:
        parts = [work(*block) for block in blocks]
    else:
        with ThreadPoolExecutor(cores) as pool:
            parts = list(pool.map(lambda block: work(*block), blocks))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
