"""A group of lanes as one row: how much of its lanes' time each state takes.

The sum over the lanes is kept for every power-of-two bucket width from `BASE` buckets of the run
on; in a window so short that finer buckets are asked for, few intervals are left to add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from rlinsight.webapp.timeline.cells import Ints, Spans, pieces
from rlinsight.webapp.timeline.lanes import TimelineLane
from rlinsight.webapp.timeline.pyramid import bucket_count, top_level

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Array, Index

#: Buckets of the finest level that is kept, at most, as a power of two.
BASE: Final = 16

#: Series that are added up at a time while building.
_PASS: Final = 256

#: Roles that stand for a group where it has several; the others repeat what these do.
_STANDING: Final = {"trainer": ("trainer_rank", "trainer")}


def group_names(lanes: Sequence[TimelineLane]) -> list[str]:
    """Return the groups in order; devices are parted by pool: `devices/trainer`."""
    names = (f"{lane.group}/{lane.pool}" if lane.pool else lane.group for lane in lanes)
    return list(dict.fromkeys(names))


def standing_lanes(lanes: Sequence[TimelineLane], name: str) -> list[int]:
    """Return the lanes that a group's row is of: ranks rather than their driver."""
    group, _, pool = name.partition("/")
    mine = [
        (i, lane)
        for i, lane in enumerate(lanes)
        if lane.group == group and lane.role != "requests" and pool in ("", lane.pool)
    ]
    for role in _STANDING.get(group, ()):
        chosen = [i for i, lane in mine if lane.role == role]
        if chosen:
            return chosen
    return [i for i, _ in mine]


def own_rows(
    lanes: Sequence[TimelineLane], chosen: Sequence[int], arrays: dict[str, Array]
) -> tuple[Ints, Ints]:
    """Return the series on the lanes' own row, and the place of each one's lane in `chosen`.

    Containers are left out: of a driver, that is the row below its steps.
    """
    bounds = arrays["lane_series"]
    parts = [np.arange(bounds[lane], bounds[lane + 1], dtype=np.int64) for lane in chosen]
    places = np.repeat(np.arange(len(parts)), [len(part) for part in parts]).astype(np.int64)
    series = np.concatenate(parts) if parts else np.empty(0, np.int64)
    own = np.array([lanes[lane].role == "trainer" for lane in chosen], np.int64)
    kept = arrays["series_row"][series] == own[places] if len(series) else np.empty(0, bool)
    return series[kept], places[kept]


def covered_sums(
    spans: Spans, series: Ints, kind: Ints, start: int, width: int, count: int
) -> Ints:
    """Return, per kind and bucket, the time in ns that the series of that kind cover together.

    `kind` numbers the series from 0. Worked example: 0-4 and 3-12 of one kind cover 6 and 5
    and 2 of buckets of 5.
    """
    stop = start + width * count
    row, low, high = pieces(spans, series, start, stop)
    low, high = low - start, high - start
    first, last = low // width, (high - 1) // width
    kinds = int(kind.max(initial=-1)) + 1
    base = kind[row] * (count + 1)
    spread = last > first
    size = kinds * (count + 1)
    held = np.where(spread, (first + 1) * width - low, high - low)
    total = np.bincount(base + first, held, size)
    base, first, low, last, high = (part[spread] for part in (base, first, low, last, high))
    total += np.bincount(base + last, high - last * width, size)
    change = np.bincount(base + first + 1, minlength=size) - np.bincount(
        base + last, minlength=size
    )
    total += np.cumsum(change) * width
    sums: Ints = np.rint(total).astype(np.int64).reshape(kinds, count + 1)[:, :count]
    return sums


def build(
    spans: Spans, lanes: Sequence[TimelineLane], arrays: dict[str, Array], extent: int
) -> tuple[dict[str, Array], tuple[tuple[str, int], ...]]:
    """Return the arrays of all groups, and the (group, state) of each row."""
    top = top_level(extent)
    level = max(0, top - BASE)
    rows: list[tuple[str, int]] = []
    kept: list[Ints] = []
    for name in group_names(lanes):
        series, states, kind = _states(lanes, name, arrays)
        rows += [(name, int(state)) for state in states]
        sums = np.zeros((len(states), bucket_count(extent, level)), np.int64)
        for part in np.array_split(np.arange(len(series)), max(1, len(series) // _PASS)):
            found = covered_sums(
                spans, series[part], kind[part], 0, 1 << level, bucket_count(extent, level)
            )
            sums[: len(found)] += found
        kept.append(np.concatenate(list(_levels(sums, level, top)), axis=1))
    width = sum(bucket_count(extent, k) for k in range(level, top + 1))
    flat = np.concatenate(kept) if kept else np.empty((0, width), np.int64)
    return {"group_covered": flat}, tuple(rows)


def _levels(sums: Ints, level: int, top: int) -> Iterator[Ints]:
    yield sums
    for _ in range(level, top):
        if sums.shape[1] % 2:
            sums = np.concatenate([sums, np.zeros((len(sums), 1), np.int64)], axis=1)
        sums = sums[:, ::2] + sums[:, 1::2]
        yield sums


def _states(
    lanes: Sequence[TimelineLane], name: str, arrays: dict[str, Array]
) -> tuple[Ints, Ints, Ints]:
    """Return the series of a group's row, its states, and the place of each one's state."""
    series, _ = own_rows(lanes, standing_lanes(lanes, name), arrays)
    states, kind = np.unique(arrays["series_state"][series], return_inverse=True)
    return series, states.astype(np.int64), kind.astype(np.int64)


def read(index: Index, name: str, level: int, first: int, count: int) -> tuple[list[int], Ints]:
    """Return the states of a group, and the time each covers in buckets first:first+count."""
    extent = index.names.extent_ns
    base = max(0, top_level(extent) - BASE)
    if level >= base:
        at = sum(bucket_count(extent, k) for k in range(base, level)) + first
        rows = [i for i, (group, _) in enumerate(index.names.group_rows) if group == name]
        states = [index.names.group_rows[i][1] for i in rows]
        return states, index.arrays.group_covered[rows, at : at + count]
    series, states_, kind = _states(index.names.lanes, name, vars(index.arrays))
    start, width = first << level, 1 << level
    return states_.tolist(), covered_sums(index.spans, series, kind, start, width, count)
