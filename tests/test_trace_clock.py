"""Clocks of several nodes brought onto one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlinsight.errors import TraceError
from rlinsight.trace.clock import (
    MAX_RESIDUAL_NS,
    Clocks,
    NodeClock,
    OffsetEstimate,
    estimate_offset,
)

_EPOCH = 1_750_000_000_000_000_000
_OFFSETS = st.integers(-(10**12), 10**12)


def test_the_worked_example_of_the_module() -> None:
    estimate = estimate_offset([(1000, 5300, 1400)])
    assert (estimate.offset_ns, estimate.rtt_ns, estimate.residual_ns) == (4100, 400, 201)
    assert NodeClock((estimate,)).corrected(5300) == 1200


def test_the_quickest_round_trips_are_believed() -> None:
    quick = [(t, t + 50 + 900, t + 100) for t in range(0, 4000, 1000)]
    slow = [(t, t + 9_000 + 900, t + 10_000) for t in range(5000, 17_000, 1000)]
    estimate = estimate_offset(slow + quick)
    assert (estimate.offset_ns, estimate.rtt_ns) == (900, 100)


def test_no_usable_round_trip_is_an_error() -> None:
    with pytest.raises(TraceError, match="at least one clock round trip"):
        estimate_offset([(10, 11, 9)])


@settings(deadline=None)
@given(
    offset=_OFFSETS,
    trips=st.lists(
        st.tuples(st.integers(0, 10**12), st.integers(0, 10**8), st.integers(0, 10**8)),
        min_size=1,
        max_size=30,
    ),
)
def test_the_true_offset_is_within_the_residual(
    offset: int, trips: list[tuple[int, int, int]]
) -> None:
    # However unequal the way there and the way back are.
    stamps = [
        (_EPOCH + at, _EPOCH + at + there + offset, _EPOCH + at + there + back)
        for at, there, back in trips
    ]
    estimate = estimate_offset(stamps)
    assert abs(estimate.offset_ns - offset) <= estimate.residual_ns


@settings(deadline=None)
@given(
    offset=_OFFSETS,
    drift=st.floats(-4e-4, 4e-4),
    hours=st.floats(0.1, 48),
    at=st.floats(0, 1),
    error=st.integers(0, 1000),
)
def test_drift_between_two_estimates_is_taken_out(
    offset: int, drift: float, hours: float, at: float, error: int
) -> None:
    length = round(hours * 3600e9)

    def remote(true_ns: int) -> int:
        return _EPOCH + true_ns + offset + round(drift * true_ns)

    clock = NodeClock(
        tuple(
            OffsetEstimate(remote(t), remote(t) - _EPOCH - t + error, error, 2 * error)
            for t in (0, length)
        )
    )
    now = round(at * length)
    corrected = clock.corrected(remote(now))
    assert clock.residual_ns is not None
    # One ns in 1e15 is lost to the float that holds the drift.
    assert abs(corrected - (_EPOCH + now)) <= clock.residual_ns + 2 + length // 10**12


@settings(deadline=None)
@given(
    offsets=st.tuples(_OFFSETS, _OFFSETS),
    times=st.lists(st.none() | st.integers(_EPOCH, _EPOCH + 10**14), max_size=5),
)
def test_columns_are_corrected_like_single_times(
    offsets: tuple[int, int], times: list[int | None]
) -> None:
    clock = NodeClock(
        (
            OffsetEstimate(_EPOCH, offsets[0], 5, 10),
            OffsetEstimate(_EPOCH + 10**14, offsets[1], 6, 10),
        )
    )
    column = clock.correct(pa.chunked_array([pa.array(times, pa.int64())]))
    for got, time in zip(column.to_pylist(), times, strict=True):
        if time is None:
            assert got is None
        else:
            assert abs(got - clock.corrected(time)) <= 1


@settings(deadline=None)
@given(
    st.lists(st.integers(_EPOCH, _EPOCH + 10**14), min_size=2, max_size=6, unique=True),
    st.tuples(_OFFSETS, _OFFSETS),
)
def test_correction_keeps_the_order_of_times(times: list[int], offsets: tuple[int, int]) -> None:
    first, second = (
        OffsetEstimate(_EPOCH + at, offset, 5, 10)
        for at, offset in zip((0, 10**14), offsets, strict=True)
    )
    clock = NodeClock((second, first))
    corrected = [clock.corrected(time) for time in sorted(times)]
    assert corrected == sorted(corrected)


def test_a_stepped_clock_is_not_taken_for_a_drift() -> None:
    # Ten seconds apart in one minute: the better estimate holds, the residual says how badly.
    best = OffsetEstimate(_EPOCH, 0, 100, 200)
    late = OffsetEstimate(_EPOCH + 60 * 10**9, 10**10, 900, 1800)
    clock = NodeClock((best, late))
    assert clock.drift == 0.0
    assert clock.offset_at(_EPOCH + 30 * 10**9) == 0
    assert clock.residual_ns == 10**10 + 900
    assert not clock.is_calibrated()


def test_without_estimates_times_stay_and_are_not_calibrated() -> None:
    clock = NodeClock()
    assert clock.corrected(7) == 7
    assert clock.residual_ns is None
    assert not clock.is_calibrated()


def known(residual_ns: int) -> NodeClock:
    return NodeClock((OffsetEstimate(0, 0, residual_ns, 2 * residual_ns),))


def test_only_nodes_with_a_small_residual_are_calibrated() -> None:
    nodes = {"n1": known(MAX_RESIDUAL_NS), "n2": known(MAX_RESIDUAL_NS + 1)}
    clocks = Clocks("n0", nodes)
    assert clocks.uncalibrated(["n0", "n1", "n2", "n3"]) == {"n2", "n3"}


def test_one_node_needs_no_calibration() -> None:
    assert Clocks().uncalibrated(["n0"]) == frozenset()
    assert Clocks("n0").uncalibrated(["n0"]) == frozenset()
    assert Clocks().uncalibrated(["n0", "n1"]) == {"n0", "n1"}


def test_estimates_of_start_and_end_are_merged() -> None:
    start, end = OffsetEstimate(0, 5, 1, 2), OffsetEstimate(10**9, 7, 1, 2)
    merged = Clocks("n0", {"n1": NodeClock((start,))}).merge(
        Clocks("n0", {"n1": NodeClock((end, start)), "n2": NodeClock((end,))})
    )
    assert merged.of("n1").estimates == (start, end)
    assert Clocks.from_dict(merged.to_dict()) == merged


@settings(deadline=None)
@given(_OFFSETS, st.integers(0, 10**6))
def test_json_keeps_every_nanosecond(offset: int, residual: int) -> None:
    assume(offset != 0)
    estimate = OffsetEstimate(_EPOCH + 1, offset, residual, residual)
    clocks = Clocks("n0", {"n1": NodeClock((estimate,))})
    assert Clocks.from_dict(clocks.to_dict()).of("n1").corrected(_EPOCH) == _EPOCH - offset
