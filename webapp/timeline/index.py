"""The index of a trace's timeline: arrays that are mapped from disk, and what names them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rlinsight.webapp.timeline.cells import Ints, Spans
from rlinsight.webapp.timeline.lanes import TimelineLane
from rlinsight.webapp.timeline.pyramid import Pyramid

#: Part of the key of an index on disk: raised whenever its content changes.
VERSION: Final = 3

#: Stands for null in a column of int32.
NULL: Final = -(1 << 31)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Arrays:
    """All arrays. Times are ns from the start of the trace.

    Items are intervals by series and start; series are by lane, row and state. `open` marks
    items without end. Gauges are by gauge and time; `gauge_area` is the integral of each up to
    each of its values, in value x ns. Markers, versions, steps and validations
    are by time. `group_covered` has a row of bucket sums per group and state, see `groups`.
    """

    start: Ints
    end: Ints
    reach: Ints
    bounds: Ints
    step: Array
    version: Array
    open: Array
    series_lane: Array
    series_row: Array
    series_state: Array
    lane_series: Ints
    finest: Ints
    offset: Ints
    covered: Ints
    gap: Ints
    gauge_ts: Ints
    gauge_value: Array
    gauge_area: Array
    gauge_bounds: Ints
    marker_ts: Ints
    marker_kind: Array
    marker_lane: Array
    marker_version: Array
    marker_reason: Array
    version_number: Array
    version_start: Ints
    step_number: Array
    step_start: Ints
    step_end: Ints
    validation_start: Ints
    validation_end: Ints
    group_covered: Ints


@dataclass(frozen=True)
class Names:
    """What the codes in the arrays mean, and the run's frame.

    `gauges` are (name, lane) pairs; the lane of a gauge need not be one of `lanes`. `remark` says
    what could not be worked out, `group_rows` are (group, state) of the rows of `group_covered`.
    """

    origin_ns: int
    extent_ns: int
    lanes: tuple[TimelineLane, ...]
    states: tuple[str, ...]
    gauges: tuple[tuple[str, str], ...]
    marker_kinds: tuple[str, ...]
    marker_reasons: tuple[str, ...]
    items: int
    devices: int
    group_rows: tuple[tuple[str, int], ...] = ()
    remark: str | None = None


@dataclass(frozen=True)
class Index:
    """A trace's timeline, ready to answer for any window."""

    names: Names
    arrays: Arrays

    @property
    def spans(self) -> Spans:
        """All items."""
        a = self.arrays
        return Spans(a.start, a.end, a.reach, a.bounds)

    @property
    def pyramid(self) -> Pyramid:
        """The buckets of all series."""
        a = self.arrays
        return Pyramid(self.names.extent_ns, a.finest, a.offset, a.covered, a.gap)

    def series_of(self, lane: int) -> Ints:
        """Return the series of a lane."""
        first, last = self.arrays.lane_series[lane : lane + 2]
        return np.arange(first, last, dtype=np.int64)

    def lane_number(self, lane_id: str) -> int | None:
        """Return the place of a lane, None for one that the trace does not have."""
        return next((i for i, lane in enumerate(self.names.lanes) if lane.id == lane_id), None)


def save(index: Index, folder: Path) -> None:
    """Write the index into a new folder."""
    folder.mkdir(parents=True)
    for field in fields(Arrays):
        if field.name == "reach" and index.arrays.reach is index.arrays.end:
            continue
        np.save(folder / f"{field.name}.npy", getattr(index.arrays, field.name))
    names = vars(index.names) | {"lanes": [lane.to_dict() for lane in index.names.lanes]}
    (folder / "names.json").write_text(json.dumps(names), encoding="utf-8")


def load(folder: Path) -> Index:
    """Map an index from disk: only what is asked for is read. Raises OSError, ValueError."""
    raw = json.loads((folder / "names.json").read_text(encoding="utf-8"))
    lists = ("states", "marker_kinds", "marker_reasons")
    names = Names(
        **(
            raw
            | {key: tuple(raw[key]) for key in lists}
            | {"gauges": tuple((name, lane) for name, lane in raw["gauges"])}
            | {"group_rows": tuple((group, state) for group, state in raw["group_rows"])}
            | {"lanes": tuple(TimelineLane(**lane) for lane in raw["lanes"])}
        )
    )
    found = {field.name: _mapped(folder / f"{field.name}.npy") for field in fields(Arrays)}
    arrays: dict[str, Any] = {
        name: found["end"] if array is None else array for name, array in found.items()
    }
    return Index(names, Arrays(**arrays))


def _mapped(path: Path) -> Array | None:
    if path.name == "reach.npy" and not path.exists():
        return None
    try:
        mapped: Array = np.load(path, mmap_mode="r")
    except ValueError:  # an array without rows cannot be mapped
        mapped = np.load(path)
    return np.asarray(mapped)  # still the mapped memory, without a subclass's overhead
