"""Many lanes on few pixels: a lane of a few pixels' height, or a whole group as one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlinsight.webapp.timeline.groups import own_rows, read, standing_lanes
from rlinsight.webapp.timeline.index import Array, Index

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.window import Frame

#: Buckets, of all series together, that are computed for an answer at most.
_MOST_CELLS: Final = 700_000

#: No state in a bucket.
NOTHING: Final = 255


def affordable(index: Index, lanes: Sequence[int], frame: Frame) -> Frame:
    """Return the frame with buckets so wide that all series of the lanes are quickly read."""
    series, _ = own_rows(index.names.lanes, lanes, vars(index.arrays))
    while len(series) * frame.count > _MOST_CELLS and frame.count > 2:
        frame = frame.coarser()
    return frame


def dense(index: Index, lanes: Sequence[int], frame: Frame) -> dict[str, Array]:
    """Return, per lane and bucket, the state that takes most of it and its share in 1/255."""
    state = np.full((len(lanes), frame.count), NOTHING, np.uint8)
    best = np.zeros((len(lanes), frame.count), np.int64)
    series, place = own_rows(index.names.lanes, lanes, vars(index.arrays))
    covered, _ = index.pyramid.read(index.spans, series, frame.level, frame.first, frame.count)
    for number, lane in enumerate(place):
        wins = covered[number] > best[lane]
        best[lane][wins] = covered[number][wins]
        state[lane][wins] = min(NOTHING, index.arrays.series_state[series[number]])
    share = np.minimum(np.ceil(best / (1 << frame.level) * 255), 255).astype(np.uint8)
    return {"dense_state": state, "dense_share": share}


def groups(
    index: Index, names: Sequence[str], frame: Frame
) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return, per group (`GROUP` or `GROUP/POOL`), the mean share of each state over its lanes."""
    found: list[dict[str, Any]] = []
    shares: list[Array] = []
    for name in names:
        lanes = len(standing_lanes(index.names.lanes, name))
        states, covered = read(index, name, frame.level, frame.first, frame.count)
        found.append({"group": name, "lanes": lanes, "states": states})
        shares.append(covered / (max(1, lanes) << frame.level))
    empty = np.empty((0, frame.count))
    joined = np.concatenate([empty, *shares]).astype(np.float32)
    return found, {"group_share": joined}
