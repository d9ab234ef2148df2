"""Truncation of warm-up, intervals over windows, and version windows."""

from __future__ import annotations

import random

import polars as pl
import pytest
from timelines import TOPOLOGY, S

import rlinsight
from rlinsight.analyzers.device_time.steady import bootstrap_interval, mser_cut
from rlinsight.analyzers.device_time.versions import version_windows


def test_the_worked_example_of_mser():
    assert mser_cut([1, 5, 5, 5]) == 1


@pytest.mark.parametrize("values", [[], [3.0], [4, 4, 4, 4]])
def test_a_flat_or_short_series_is_not_cut(values):
    assert mser_cut(values) == 0


def test_mser_5_cuts_a_slow_start_in_batches_of_five():
    noise = random.Random(1)
    series = [1 + i for i in range(10)] + [20 + noise.gauss(0, 0.5) for _ in range(40)]
    cut = mser_cut(series)
    assert cut % 5 == 0
    assert 10 <= cut <= 25


def test_mser_never_cuts_more_than_half():
    assert mser_cut([1, 9, 2, 8, 3, 7, 4, 6, 5, 5]) <= 5


def test_the_bootstrap_interval_holds_the_ratio_and_shrinks_with_windows():
    noise = random.Random(2)
    tokens = [100 + noise.gauss(0, 10) for _ in range(200)]
    few, many = (bootstrap_interval(tokens[:n], [1.0] * n) for n in (10, 200))
    assert few[0] < 100 < few[1]
    assert many[1] - many[0] < few[1] - few[0]
    assert bootstrap_interval(tokens[:3], [1.0] * 3) is None


def markers(*rows: tuple[float, str, int]) -> pl.DataFrame:
    return pl.DataFrame(
        [(round(ts * S), "param_sync", lane, version) for ts, lane, version in rows],
        schema={"ts_ns": pl.Int64, "kind": pl.String, "lane": pl.String, "param_version": pl.Int32},
        orient="row",
    )


def windows(rows: pl.DataFrame, end_s: float) -> list[tuple[int, float, float]]:
    table = version_windows(rows, TOPOLOGY, round(end_s * S))
    return [(v, a / S, b / S) for v, a, b in table.iter_rows()]


def test_a_version_is_live_when_the_last_replica_has_it():
    two = TOPOLOGY.merge(
        rlinsight.Topology(
            lanes=[rlinsight.Lane("replica1", role="replica", engine_kind="standalone")]
        )
    )
    rows = markers(
        (10, "replica0", 3), (11, "replica1", 3), (20, "replica0", 4), (20, "replica1", 4),
        (9, "trainer", 3),
    )  # fmt: skip
    table = version_windows(rows, two, 24 * S)
    assert [(v, a / S, b / S) for v, a, b in table.iter_rows()] == [(3, 11, 20), (4, 20, 24)]


def test_without_replica_markers_the_trainer_speaks():
    assert windows(markers((5, "trainer", 1), (9, "trainer", 2)), 12) == [(1, 5, 9), (2, 9, 12)]


def test_a_version_set_again_starts_no_new_window():
    rows = markers((5, "replica0", 1), (7, "replica0", 1), (9, "replica0", 2))
    assert windows(rows, 12) == [(1, 5, 9), (2, 9, 12)]
