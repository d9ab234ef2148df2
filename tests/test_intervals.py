"""Union, intersection and level against counting every nanosecond."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rlinsight.analyzers.device_time.intervals import (
    covered,
    intersect,
    level,
    time_order,
    total_ns,
    union,
)

Pairs = list[tuple[int, int]]
GROUPED = {"lane": pl.String, "state": pl.UInt8, "start_ns": pl.Int64, "end_ns": pl.Int64}
PLAIN = {"start_ns": pl.Int64, "end_ns": pl.Int64}
LARGEST = 2**63 - 1

moments = st.integers(0, 40)
pairs = st.lists(st.tuples(moments, moments), max_size=25)
grouped = st.lists(
    st.tuples(st.sampled_from(["b", "a", "a longer name"]), st.integers(0, 2), moments, moments),
    max_size=40,
)  # fmt: skip


def frame(rows: Iterable[tuple[int, int]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=PLAIN, orient="row")


def as_runs(moments: Iterable[int]) -> Pairs:
    """Neighbouring moments as [start, end) intervals."""
    runs: Pairs = []
    for moment in sorted(set(moments)):
        if runs and runs[-1][1] == moment:
            runs[-1] = (runs[-1][0], moment + 1)
        else:
            runs.append((moment, moment + 1))
    return runs


def united(rows: Pairs) -> Pairs:
    """The union, by counting moments."""
    return as_runs(moment for start, end in rows for moment in range(start, end))


@given(pairs)
def test_union_is_what_any_interval_covers(rows):
    assert union(frame(rows)).rows() == united(rows)


@given(pairs, st.integers(-(2**62), 2**62))
def test_union_does_not_depend_on_the_origin(rows, origin):
    moved = union(frame((start + origin, end + origin) for start, end in rows))
    assert moved.rows() == [(start + origin, end + origin) for start, end in united(rows)]


@given(grouped, st.sampled_from([pl.String, pl.Categorical]))
def test_groups_are_united_apart(rows, names):
    table = pl.DataFrame(rows, schema=GROUPED, orient="row").cast({"lane": names})
    found: dict[tuple[str, int], Pairs] = {}
    for lane, state, start, end in union(table, ["lane", "state"]).iter_rows():
        found.setdefault((lane, state), []).append((start, end))
    expected = {
        key: runs
        for key in {(lane, state) for lane, state, _, _ in rows}
        if (runs := united([(s, e) for lane, state, s, e in rows if (lane, state) == key]))
    }
    assert found == expected
    summed = {(*row[:2],): row[2:] for row in covered(table, ["lane", "state"]).rows()}
    apart = {
        key: [(s, e) for lane, state, s, e in rows if (lane, state) == key]
        for key in {(lane, state) for lane, state, _, _ in rows}
    }
    assert summed == {
        key: (len(all_), sum(e - s for s, e in all_), sum(e - s for s, e in expected.get(key, [])))
        for key, all_ in apart.items()
    }


@given(grouped)
def test_groups_that_do_not_fit_on_the_integer_axis(rows):
    """Each group also has an interval over half of all int64 times: no two of them fit."""
    far = [(lane, state, LARGEST // 2, LARGEST) for lane, state, _, _ in rows]
    table = pl.DataFrame([*rows, *far], schema=GROUPED, orient="row")
    found = union(table, ["lane", "state"])
    near = union(pl.DataFrame(rows, schema=GROUPED, orient="row"), ["lane", "state"])
    assert sorted(found.filter(pl.col("end_ns") < LARGEST).rows()) == sorted(near.rows())
    assert found.filter(pl.col("end_ns") == LARGEST).height == len(set(far))


@given(pairs)
def test_times_near_both_ends_of_int64(rows):
    origin = LARGEST - 40
    assert union(frame((s + origin, e + origin) for s, e in rows)).rows() == [
        (s + origin, e + origin) for s, e in united(rows)
    ]


@given(pairs, pairs)
def test_an_intersection_is_what_both_cover(first, second):
    inside = {m for s, e in first for m in range(s, e)} & {
        m for s, e in second for m in range(s, e)
    }
    found = intersect(frame(first), frame(second))
    assert found.rows() == as_runs(inside)
    assert total_ns(found) == len(inside)


@given(pairs)
def test_the_level_counts_the_active_intervals(rows):
    counts = {m: sum(s <= m < e for s, e in rows) for m in range(41)}
    found = {m: n for s, e, n in level(frame(rows)).iter_rows() for m in range(s, e)}
    assert found == {m: n for m, n in counts.items() if n}


def test_the_worked_examples():
    assert intersect(frame([(0, 10), (20, 30)]), frame([(5, 25)])).rows() == [(5, 10), (20, 25)]
    assert level(frame([(0, 10), (4, 6)])).rows() == [(0, 4, 1), (4, 6, 2), (6, 10, 1)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-(2**62), 2**62)), max_size=40))
def test_the_order_is_by_group_then_time_and_stable(rows):
    """Also of times that are too far apart to make one key with their group."""
    code = np.array([group for group, _ in rows], np.int64)
    at = np.array([time for _, time in rows], np.int64)
    order = time_order(code, at)
    assert order.tolist() == np.lexsort((at, code)).tolist()
