"""The ledger conserves time, and overlapping records are decided by stated priorities."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rlinsight.analyzers.device_time.intervals import union
from rlinsight.analyzers.device_time.ledger import ledger, sweep
from rlinsight.analyzers.device_time.states import PRIORITY, STATE_ID, UNATTRIBUTED

SCHEMA = {"device": pl.String, "state": pl.UInt8, "start_ns": pl.Int64, "end_ns": pl.Int64}


def intervals(*rows: tuple[str, str, int, int]) -> pl.DataFrame:
    """Rows of (device, state, start, end)."""
    coded = [(device, STATE_ID[state], start, end) for device, state, start, end in rows]
    return pl.DataFrame(coded, schema=SCHEMA, orient="row")


def spent(*rows: tuple[str, str, int, int], window: tuple[int, int]) -> dict[str, int]:
    table = ledger(sweep(intervals(*rows), ["d"], window))
    return dict(table.select("state", "ns").iter_rows())


def test_the_worked_example():
    assert spent(
        ("d", "train.update_actor", 2, 8),
        ("d", "generate", 4, 12),
        ("d", "bubble.wait_samples", 10, 20),
        window=(0, 20),
    ) == {
        "train.update_actor": 6,
        "generate": 4,
        "bubble.wait_samples": 8,
        UNATTRIBUTED: 2,
    }


def test_gen_0_10_pause_10_14_gen_14_20_is_idle_4_of_20():
    assert spent(
        ("d", "generate", 0, 10),
        ("d", "bubble.staleness_quota", 10, 14),
        ("d", "generate", 14, 20),
        window=(0, 20),
    ) == {"generate": 16, "bubble.staleness_quota": 4}


def test_overlapping_requests_count_once_and_a_gap_stays_a_gap():
    assert spent(
        ("d", "generate", 0, 5), ("d", "generate", 3, 8), ("d", "generate", 9, 10),
        window=(0, 10),
    ) == {"generate": 9, UNATTRIBUTED: 1}  # fmt: skip


def test_a_weight_sync_interrupts_requests_in_flight():
    assert spent(("d", "generate", 0, 10), ("d", "weight_sync", 4, 6), window=(0, 10)) == {
        "generate": 8,
        "weight_sync": 2,
    }


def test_a_device_without_records_is_unattributed():
    segments = sweep(intervals(("a", "generate", 0, 4)), ["a", "b"], (0, 4))
    assert segments.filter(pl.col("device") == "b").rows() == [("b", UNATTRIBUTED, 0, 4)]


def test_union_joins_touching_and_drops_empty():
    rows = intervals(
        ("d", "generate", 5, 9), ("d", "generate", 1, 3), ("d", "generate", 3, 4),
        ("d", "generate", 7, 7), ("d", "generate", 6, 8),
    )  # fmt: skip
    assert union(rows, ["device", "state"]).select("start_ns", "end_ns").rows() == [
        (1, 4),
        (5, 9),
    ]


interval = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(PRIORITY),
    st.integers(0, 60),
    st.integers(0, 60),
).map(lambda row: (*row[:2], min(row[2:]), max(row[2:])))


@given(st.lists(interval, max_size=40))
def test_time_is_conserved_and_each_moment_has_its_highest_priority_state(rows):
    segments = sweep(intervals(*rows), ["a", "b", "c", "never"], (0, 60))
    assert ledger(segments).group_by("device").agg(pl.col("ns").sum())["ns"].to_list() == [60] * 4
    timeline = {
        (device, t): state
        for device, state, start, end in segments.iter_rows()
        for t in range(start, end)
    }
    for device in ("a", "b", "c", "never"):
        for t in range(60):
            active = [PRIORITY.index(s) for d, s, a, b in rows if d == device and a <= t < b]
            expected = PRIORITY[min(active)] if active else UNATTRIBUTED
            assert timeline[device, t] == expected
