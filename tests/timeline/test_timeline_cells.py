"""A bucket of the timeline tells the truth: covered time is conserved, the longest gap is exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinsight.webapp.timeline import pyramid
from rlinsight.webapp.timeline.cells import Spans, bisect, cells, ranges
from rlinsight.webapp.timeline.depths import MOST_ROWS, nesting, slots
from rlinsight.webapp.timeline.groups import covered_sums
from rlinsight.webapp.timeline.window import quantized


def spans(*series: list[tuple[int, int]]) -> Spans:
    """Series of (start, end)."""
    rows = [sorted(one) for one in series]
    flat = list(itertools.chain.from_iterable(rows))
    bounds = np.cumsum([0, *(len(one) for one in rows)])
    start, end = (np.array([row[i] for row in flat], np.int64) for i in (0, 1))
    return Spans.of(start, end, bounds.astype(np.int64))


def everything(held: Spans, start: int, width: int, count: int, extent: int | None = None):
    series = np.arange(len(held.bounds) - 1)
    return cells(held, series, start, width, count, extent=extent)


intervals = st.lists(
    st.tuples(st.integers(0, 300), st.integers(1, 60)).map(lambda x: (x[0], x[0] + x[1])),
    max_size=12,
)


def covered_ns(held: list[tuple[int, int]], low: int, high: int) -> list[bool]:
    """Say of each ns in [low, high) whether an interval covers it."""
    return [any(start <= ns < end for start, end in held) for ns in range(low, high)]


def longest_run(flags: list[bool], wanted: bool) -> int:
    runs = (len(list(run)) for flag, run in itertools.groupby(flags) if flag is wanted)
    return max(runs, default=0)


def test_the_worked_example():
    found = everything(spans([(0, 4), (7, 9)]), 0, 5, 2)
    assert found.covered.tolist() == [[4, 2]]
    assert found.gap.tolist() == [[1, 2]]


def test_half_covered_by_one_and_by_many_are_told_apart():
    one, many = [(0, 50)], [(i, i + 1) for i in range(0, 100, 2)]
    found = everything(spans(one, many), 0, 100, 1)
    assert found.covered.tolist() == [[50], [50]]
    assert found.gap.tolist() == [[50], [1]]


def test_a_gap_of_one_ns_between_two_intervals_is_a_gap():
    found = everything(spans([(0, 50), (51, 100)]), 0, 100, 1)
    assert (found.covered[0, 0], found.gap[0, 0]) == (99, 1)


def test_overlapping_intervals_of_a_series_count_once():
    found = everything(spans([(0, 10), (2, 5), (8, 20)], [(3, 4)]), 0, 20, 1)
    assert found.covered.tolist() == [[20], [1]]


def test_behind_the_end_of_the_trace_there_is_no_gap():
    found = everything(spans([(0, 7)]), 0, 10, 1, extent=8)
    assert (found.covered[0, 0], found.gap[0, 0], found.length[0]) == (7, 1, 8)


@given(st.lists(intervals, min_size=1, max_size=3), st.integers(1, 70), st.integers(0, 90))
def test_each_bucket_is_what_counting_every_ns_gives(series, width, start):
    count = 5
    found = everything(spans(*series), start, width, count)
    for row, held in enumerate(series):
        for bucket in range(count):
            low = start + bucket * width
            flags = covered_ns(held, low, low + width)
            assert found.covered[row, bucket] == sum(flags)
            assert found.gap[row, bucket] == longest_run(flags, wanted=False)


@given(st.lists(intervals, min_size=1, max_size=3), st.integers(310, 400))
def test_covered_time_is_conserved_in_every_level(series, extent):
    held = spans(*series)
    built = pyramid.build(held, extent)
    numbers = np.arange(len(series))
    whole = [sum(covered_ns(one, 0, extent)) for one in series]
    for level in range(built.top + 1):
        count = pyramid.bucket_count(extent, level)
        covered, _ = built.read(held, numbers, level, 0, count)
        assert covered.sum(axis=1).tolist() == whole


@given(st.lists(intervals, min_size=1, max_size=3), st.integers(310, 400))
def test_the_longest_gap_is_exact_in_every_level(series, extent):
    held = spans(*series)
    built = pyramid.build(held, extent)
    for level in range(built.top + 1):
        count = pyramid.bucket_count(extent, level)
        _, gap = built.read(held, np.arange(len(series)), level, 0, count)
        for row, one in enumerate(series):
            for bucket in range(count):
                low, high = bucket << level, min(extent, (bucket + 1) << level)
                assert gap[row, bucket] == longest_run(covered_ns(one, low, high), wanted=False)


@given(st.lists(intervals, min_size=2, max_size=4))
def test_a_part_of_a_level_is_that_part_of_the_whole(series):
    held = spans(*series)
    built = pyramid.build(held, 400)
    numbers = np.arange(len(series))[::-1]
    for level in (2, 4, 6):
        count = pyramid.bucket_count(400, level)
        whole, part = (built.read(held, numbers, level, *at) for at in ((0, count), (1, count - 2)))
        assert (part[0] == whole[0][:, 1:-1]).all()
        assert (part[1] == whole[1][:, 1:-1]).all()


@given(st.lists(st.integers(0, 50), max_size=20).map(sorted), st.integers(-1, 51))
def test_bisect_finds_what_searchsorted_finds(values, wanted):
    found = bisect(np.array(values, np.int64), np.array([0]), np.array([len(values)]), wanted)
    assert found.tolist() == [int(np.searchsorted(values, wanted))]


def test_ranges_are_laid_one_after_the_other():
    at, owner = ranges(np.array([3, 7, 5]), np.array([5, 7, 6]))
    assert (at.tolist(), owner.tolist()) == ([3, 4, 5], [0, 0, 2])


# -- rows ---------------------------------------------------------------------------------


def rows(*intervals: tuple[int, int]) -> list[int]:
    start, end = (np.array([one[i] for one in intervals]) for i in (0, 1))
    return nesting(np.zeros(len(intervals), np.int32), start, end).tolist()


def test_what_runs_inside_another_is_below_it():
    assert rows((0, 10), (1, 4), (2, 3), (5, 6)) == [0, 1, 2, 1]


def test_phases_that_touch_share_a_row():
    assert rows((0, 5), (5, 8), (8, 9)) == [0, 0, 0]


def test_two_that_begin_together_nest_the_shorter_in_the_longer():
    assert rows((0, 10), (0, 4), (4, 9)) == [0, 1, 1]


def test_lanes_do_not_push_each_other_down():
    lane, start = np.array([0, 0, 1]), np.array([0, 1, 0])
    assert nesting(lane, start, np.array([9, 2, 9])).tolist() == [0, 1, 0]


@given(st.lists(intervals, min_size=1, max_size=1))
def test_slots_never_overlap_and_are_as_many_as_run_at_once(series):
    held = sorted(series[0])
    if not held:
        return
    start, end = (np.array([one[i] for one in held]) for i in (0, 1))
    found = slots(start, end)
    for slot in set(found.tolist()):
        mine = [one for one, at in zip(held, found, strict=True) if at == slot]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(mine))
    at_once = max(sum(s <= ns < e for s, e in held) for ns in start.tolist())
    assert found.max() + 1 == at_once


def test_deep_nesting_ends_on_the_last_row():
    deep = rows(*[(i, 100 - i) for i in range(12)])
    assert max(deep) == MOST_ROWS - 1


# -- what goes over the wire --------------------------------------------------------------


@given(st.integers(1, 10**12), st.data())
def test_a_quantized_share_is_none_or_all_only_where_it_is(whole, data):
    part = data.draw(st.integers(0, whole))
    share = int(quantized(np.array([part]), np.array([whole]))[0])
    assert (share == 0) is (part == 0)
    assert (share == 65535) is (part == whole)
    assert share / 65535 == pytest.approx(part / whole, abs=2 / 65535)


# -- groups -------------------------------------------------------------------------------


def test_the_worked_example_of_a_group():
    held = spans([(0, 4)], [(3, 12)])
    found = covered_sums(held, np.array([0, 1]), np.array([0, 0]), 0, 5, 3)
    assert found.tolist() == [[6, 5, 2]]


@given(st.lists(intervals, min_size=1, max_size=4), st.integers(1, 70), st.integers(0, 90))
def test_a_group_has_the_sum_of_what_its_lanes_have(series, width, start):
    held, numbers = spans(*series), np.arange(len(series))
    kind = numbers % 2
    sums = covered_sums(held, numbers, kind, start, width, 5)
    each = cells(held, numbers, start, width, 5).covered
    for number in range(len(sums)):
        assert sums[number].tolist() == each[kind == number].sum(axis=0).tolist()
