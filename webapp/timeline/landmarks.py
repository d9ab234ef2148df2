"""What a window shows besides intervals: markers, version boundaries, steps, validations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from rlinsight.webapp.timeline.cells import Ints
from rlinsight.webapp.timeline.index import Array, Index

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.window import View

#: Pixels that two marks of a kind are apart at least; those in between are counted.
_APART: Final = 4

#: Marks that an answer has at most.
_MOST: Final = 4000


def within(index: Index, view: View) -> dict[str, Array]:
    """Return the landmarks and markers that a view shows, times in s from its start."""
    a = index.arrays
    apart = max(1, (view.end - view.start) * _APART // max(1, view.pixels))
    versions = _thinned(a.version_start, view, apart)
    steps = _thinned(a.step_start, view, apart)
    low = int(np.searchsorted(a.validation_end, view.start, side="right"))
    high = int(np.searchsorted(a.validation_start, view.end))
    bands = slice(low, max(low, min(high, low + _MOST)))
    return {
        "version_number": a.version_number[versions],
        "version_start": _seconds(a.version_start[versions], view),
        "step_number": a.step_number[steps],
        "step_start": _seconds(a.step_start[steps], view),
        "step_end": _seconds(a.step_end[steps], view),
        "band_start": _seconds(a.validation_start[bands], view),
        "band_end": _seconds(a.validation_end[bands], view),
        **_markers(index, view, apart),
    }


def _thinned(times: Ints, view: View, apart: int) -> Ints:
    """Return the last event before the view and those in it, the first of each `apart` ns."""
    first = max(0, int(np.searchsorted(times, view.start, side="right")) - 1)
    last = int(np.searchsorted(times, view.end))
    at = np.arange(first, max(first, last), dtype=np.int64)
    _, kept = np.unique(times[at] // apart, return_index=True)
    return at[kept][:_MOST]


def _markers(index: Index, view: View, apart: int) -> dict[str, Array]:
    a = index.arrays
    at = np.arange(*np.searchsorted(a.marker_ts, (view.start, view.end)), dtype=np.int64)
    at = at[np.isin(a.marker_lane[at], np.array(view.lanes, np.int32))]
    key = (a.marker_ts[at] // apart * 64 + a.marker_kind[at]) * 65_536 + a.marker_lane[at]
    _, kept, counts = np.unique(key, return_index=True, return_counts=True)
    kept, counts = kept[:_MOST], counts[:_MOST]
    return {
        "marker_at": _seconds(a.marker_ts[at][kept], view),
        "marker_lane": a.marker_lane[at][kept],
        "marker_kind": a.marker_kind[at][kept],
        "marker_version": a.marker_version[at][kept],
        "marker_reason": a.marker_reason[at][kept],
        "marker_count": counts.astype(np.int32),
    }


def _seconds(times: Ints, view: View) -> Array:
    return ((times - view.start) / 1e9).astype(np.float32)
