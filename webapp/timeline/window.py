"""The answer for a window: what a screen of some width can show of the lanes that are on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rlinsight.webapp.timeline import landmarks, overview, panels
from rlinsight.webapp.timeline.cells import Ints, ranges
from rlinsight.webapp.timeline.index import Array, Index
from rlinsight.webapp.timeline.pyramid import bucket_count
from rlinsight.webapp.timeline.wire import pack

#: Bytes that an answer stays below; more lanes get wider buckets.
MOST_BYTES: Final = 1_400_000

#: Buckets, of all series together, that are computed for an answer at most.
_MOST_CELLS: Final = 400_000

#: A series with this many intervals in the window, or one per four buckets, goes as they are.
_FEW: Final = 48

_FULL: Final = 65_535


@dataclass(frozen=True)
class View:
    """What is asked for: a window in ns from the start of the trace, and its width in pixels.

    `lanes` are drawn in full, `dense` a few pixels high each, `groups` as one summary row each;
    with `gauges` the panels below the lanes are answered, too.
    """

    start: int
    end: int
    pixels: int
    lanes: tuple[int, ...] = ()
    dense: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    gauges: bool = True


@dataclass(frozen=True)
class Frame:
    """Buckets first:first+count of a level, which cover a view."""

    level: int
    first: int
    count: int

    @property
    def start(self) -> int:
        """Where the first bucket begins, in ns."""
        return self.first << self.level

    def to_dict(self) -> dict[str, float]:
        """Return where the first bucket begins and the width of each, in s, and their number."""
        first_s, bucket_s = self.start / 1e9, (1 << self.level) / 1e9
        return {"first_s": first_s, "bucket_s": bucket_s, "count": self.count}

    def coarser(self) -> Frame:
        """Return buckets of twice the width."""
        last = (self.first + self.count - 1) >> 1
        return Frame(self.level + 1, self.first >> 1, last - (self.first >> 1) + 1)


def frame_of(view: View, extent: int) -> Frame:
    """Return the finest buckets that are at least a pixel wide."""
    start, end = max(0, view.start), min(extent, view.end)
    if start >= end:
        return Frame(0, 0, 1)
    width = max(1, -(-(view.end - view.start) // max(1, view.pixels)))
    level = (width - 1).bit_length()
    first = start >> level
    return Frame(level, first, ((end - 1) >> level) - first + 1)


def answer(index: Index, view: View, extra: dict[str, Any] | None = None) -> bytes:
    """Return the packed answer, below `MOST_BYTES` whatever is asked for."""
    frame = frame_of(view, index.names.extent_ns)
    while _many(index, view, frame) * frame.count > _MOST_CELLS and frame.count > 2:
        frame = frame.coarser()
    while True:
        found = _answer(index, view, frame, extra or {})
        if len(found) <= MOST_BYTES or frame.count <= 2:
            return found
        frame = frame.coarser()


def _answer(index: Index, view: View, frame: Frame, extra: dict[str, Any]) -> bytes:
    arrays = _series(index, view, frame)
    strips = overview.affordable(index, view.dense, frame)
    slow = frame.coarser()
    summary, parts = overview.groups(index, view.groups, frame)
    areas, levels = panels.areas(index, view.lanes, slow)
    header = {
        "from_s": view.start / 1e9,
        "to_s": view.end / 1e9,
        "frames": {
            "cells": frame.to_dict(),
            "dense": strips.to_dict(),
            "groups": frame.to_dict(),
            "gauges": slow.to_dict(),
        },
        "lanes": list(view.lanes),
        "dense": list(view.dense),
        "groups": summary,
        "areas": areas,
        **extra,
    }
    arrays |= {**parts, **levels, **overview.dense(index, view.dense, strips)}
    arrays |= landmarks.within(index, view)
    if view.gauges:
        header["panels"], lines = panels.panels(index, slow)
        arrays |= lines
    return pack(header, arrays)


def _many(index: Index, view: View, frame: Frame) -> int:
    """Return how many series have too many intervals in the view to go as they are."""
    series = lanes_series(index, view.lanes)
    first, last = index.spans.within(series, view.start, view.end)
    return int(np.count_nonzero(~_is_plain(last - first, frame)))


def _is_plain(held: Ints, frame: Frame) -> Array:
    plain: Array = held <= max(_FEW, frame.count // 4)
    return plain


def _series(index: Index, view: View, frame: Frame) -> dict[str, Array]:
    """Return the series of the lanes: each as its intervals, or as buckets where there are many."""
    series = lanes_series(index, view.lanes)
    first, last = index.spans.within(series, view.start, view.end)
    held = last - first
    series, first, last = (part[held > 0] for part in (series, first, last))
    held = held[held > 0]
    plain = _is_plain(held, frame)
    return {
        "series_lane": index.arrays.series_lane[series],
        "series_row": index.arrays.series_row[series],
        "series_state": index.arrays.series_state[series],
        **_intervals(index, view, first, last, plain),
        **_buckets(index, series, frame, plain),
    }


def lanes_series(index: Index, lanes: Sequence[int]) -> Ints:
    """Return the series of all these lanes."""
    parts = [index.series_of(lane) for lane in lanes]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _intervals(index: Index, view: View, first: Ints, last: Ints, plain: Array) -> dict[str, Array]:
    """Return intervals by series; `item_bounds` says which are whose (none of a bucketed one).

    Times are seconds from the start of the view, cut a view's width beside it.
    """
    at, _ = ranges(first, np.where(plain, last, first))
    sizes = np.where(plain, last - first, 0)
    a, width = index.arrays, view.end - view.start
    low, high = (
        np.clip(part[at] - view.start, -width, 2 * width) / 1e9 for part in (a.start, a.end)
    )
    return {
        "item_bounds": np.append(0, np.cumsum(sizes)).astype(np.uint32),
        "item_start": low.astype(np.float32),
        "item_length": (high - low).astype(np.float32),
        "item_step": a.step[at],
        "item_version": a.version[at],
        "item_open": a.open[at].astype(np.uint8),
    }


def _buckets(index: Index, series: Ints, frame: Frame, plain: Array) -> dict[str, Array]:
    """Return the buckets with anything in them; shares are of a bucket's length, in 1/65535."""
    many = np.flatnonzero(~plain)
    covered, gap = index.pyramid.read(
        index.spans, series[many], frame.level, frame.first, frame.count
    )
    length = bucket_length(index, frame)
    row, bucket = np.nonzero(covered)
    sizes = np.zeros(len(series), np.int64)
    sizes[many] = np.count_nonzero(covered, axis=1)
    return {
        "cell_bounds": np.append(0, np.cumsum(sizes)).astype(np.uint32),
        "cell_bucket": bucket.astype(np.uint16),
        "cell_share": quantized(covered[row, bucket], length[bucket]),
        "cell_gap": quantized(gap[row, bucket], length[bucket]),
    }


def bucket_length(index: Index, frame: Frame) -> Ints:
    """Return the length of each bucket in ns: the trace may end within the last one."""
    assert frame.first + frame.count <= bucket_count(index.names.extent_ns, frame.level)
    begins = frame.start + (np.arange(frame.count, dtype=np.int64) << frame.level)
    length: Ints = np.minimum(1 << frame.level, index.names.extent_ns - begins)
    return length


def quantized(part: Ints, whole: Ints) -> Array:
    """Return part / whole in 1/65535; only nothing is 0, and only all of it is 65535."""
    share = np.rint(part / whole * _FULL).astype(np.int64)
    share = np.where(part < whole, np.minimum(share, _FULL - 1), share)
    return np.where(part > 0, np.maximum(share, 1), share).astype(np.uint16)
