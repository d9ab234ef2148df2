"""Buckets of a screen's width keep all of the time and show every state that occurs."""

from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinsight.analyzers.device_time.level_of_detail import buckets

S = 1_000_000_000
SCHEMA = {"device": pl.String, "state": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}


def segments(*rows: tuple[str, str, int, int]) -> pl.DataFrame:
    """Rows of (device, state, start, end), in seconds."""
    ns = [(device, state, start * S, end * S) for device, state, start, end in rows]
    return pl.DataFrame(ns, schema=SCHEMA, orient="row")


@st.composite
def tilings(draw) -> tuple[pl.DataFrame, tuple[int, int]]:
    """Segments that tile a window on two devices; neighbours may have one state."""
    start = draw(st.sampled_from([0, 1_700_000_000 * S]))
    width = draw(st.integers(1, 400))
    rows = []
    for device in ("d0", "d1"):
        cuts = draw(st.sets(st.integers(1, max(1, width - 1)), max_size=12)) - {width}
        edges = [0, *sorted(cuts), width]
        rows += [
            (device, draw(st.sampled_from("abc")), start + low, start + high)
            for low, high in itertools.pairwise(edges)
        ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row"), (start, start + width)


def test_the_worked_example():
    found = buckets(segments(("d", "a", 0, 4), ("d", "b", 4, 10)), ["d"], (0, 10 * S), 2)
    assert found.select("state", "middle_s", "width_s", "share", "below").rows() == [
        ("a", 2.5, 5.0, pytest.approx(0.8), pytest.approx(0.0)),
        ("b", 2.5, 5.0, pytest.approx(0.2), pytest.approx(0.8)),
        ("b", 7.5, 5.0, pytest.approx(1.0), pytest.approx(0.0)),
    ]
    assert found["longest_s"].to_list() == [4.0, 1.0, 5.0]


def test_a_gap_of_a_thousandth_of_a_bucket_still_shows():
    rows = segments(("d", "work", 0, 500), ("d", "idle", 500, 501), ("d", "work", 501, 1000))
    found = buckets(rows, ["d"], (0, 1000 * S), 1)
    assert found.filter(pl.col("state") == "idle")["share"].to_list() == [pytest.approx(0.001)]


def test_other_devices_are_left_out():
    rows = segments(("d", "a", 0, 10), ("e", "b", 0, 10))
    assert set(buckets(rows, ["e"], (0, 10 * S), 3)["device"]) == {"e"}


@given(tilings(), st.integers(1, 40))
def test_the_shares_of_a_bucket_sum_to_one_and_stack(tiling, count):
    found = buckets(tiling[0], ["d0", "d1"], tiling[1], count)
    for _, bucket in found.group_by("device", "middle_s", maintain_order=True):
        tops = (bucket["below"] + bucket["share"]).to_list()
        assert bucket["below"].to_list() == pytest.approx([0.0, *tops[:-1]])
        assert tops[-1] == pytest.approx(1.0)


@given(tilings(), st.integers(1, 40))
def test_time_is_conserved_per_device_and_state(tiling, count):
    rows, (start, end) = tiling
    found = buckets(rows, ["d0", "d1"], (start, end), count)
    width = -(-(end - start) // count)
    # The last bucket may reach beyond the window: its shares are of what lies within.
    first = ((found["middle_s"] - found["width_s"] / 2) * S).round().cast(pl.Int64)
    within = [min(width, end - start - low) for low in first]
    spent = found.with_columns(ns=found["share"] * pl.Series(within, dtype=pl.Int64))
    sums = spent.group_by("device", "state").agg(pl.col("ns").sum()).sort("device", "state")
    expected = (
        rows.group_by("device", "state")
        .agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .sort("device", "state")
    )
    assert sums.select("device", "state").rows() == expected.select("device", "state").rows()
    assert sums["ns"].to_list() == pytest.approx(expected["ns"].to_list())
