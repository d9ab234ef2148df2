"""The ledger cut into version windows: idle per window, and intervals for the headline figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.pools import POOL_NAMES
from rlinsight.analyzers.device_time.states import kind
from rlinsight.analyzers.device_time.steady import MIN_WINDOWS, bootstrap_interval
from rlinsight.analyzers.device_time.trained import tokens_of_all
from rlinsight.trace.topology import Topology

#: What is less of the time than this share is rounding.
_NO_REST = 1e-9


@dataclass(frozen=True)
class VersionRow:
    """One version window, clipped to the analysis window. `idle_ratio` is per pool.

    Trained tokens (prompt + response) and samples are those consumed in it; None where the run
    recorded no trained sample, tokens also where no length of the window's samples is known
    (see `tokens_of_all`).
    """

    version: int
    start_ns: int
    end_ns: int
    duration_s: float
    idle_ratio: dict[str, float | None]
    trained_tokens: int | None
    trained_samples: int | None


def clipped(versions: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    """Return the version windows within `window`."""
    start, end = window
    return versions.with_columns(
        pl.max_horizontal("start_ns", pl.lit(start, pl.Int64)),
        pl.min_horizontal("end_ns", pl.lit(end, pl.Int64)),
    ).filter(pl.col("start_ns") < pl.col("end_ns"))


def version_rows(
    segments: pl.DataFrame, versions: pl.DataFrame, samples: pl.DataFrame, topology: Topology
) -> list[VersionRow]:
    """Return idle ratio and trained tokens of each of `versions` (see `clipped`)."""
    idle = {
        name: _idle_per_window(segments, versions, topology, pool)
        for pool, name in POOL_NAMES.items()
    }
    tokens, count = _trained_per_window(samples, versions)
    return [
        VersionRow(
            version=version,
            start_ns=start,
            end_ns=end,
            duration_s=(end - start) / 1e9,
            idle_ratio={name: ratios[i] for name, ratios in idle.items() if ratios is not None},
            trained_tokens=tokens[i],
            trained_samples=count[i],
        )
        for i, (version, start, end) in enumerate(
            versions.select("version", "start_ns", "end_ns").iter_rows()
        )
    ]


def idle_interval(
    rows: Sequence[VersionRow], pool: str, whole: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the 95 % interval of a pool's idle ratio over version windows; None for too few.

    `whole` are the idle seconds and the seconds of a device over the analysis window.
    """
    known = [(ratio * row.duration_s, row.duration_s) for row in rows
             if (ratio := row.idle_ratio.get(pool)) is not None]  # fmt: skip
    return interval_of_ratio(known, whole)


def interval_of_ratio(
    windows: Sequence[tuple[float, float]], whole: tuple[float, float]
) -> tuple[float, float] | None:
    """Return the 95 % interval of an amount per time over version `windows` (amount, time).

    What they leave of `whole`, the time before the first version went live, counts as a window
    of its own: without it the interval would be of another ratio than that of the whole.
    """
    parts = list(windows)
    if len(parts) < MIN_WINDOWS:
        return None
    amount, time = whole[0] - sum(a for a, _ in parts), whole[1] - sum(t for _, t in parts)
    if time > _NO_REST * whole[1]:
        parts.insert(0, (amount, time))
    amounts, times = zip(*parts, strict=True)
    return bootstrap_interval(amounts, times)


def covered_before(intervals: pl.DataFrame, times: np.ndarray) -> np.ndarray:
    """Return how many nanoseconds of `intervals` lie before each of `times`, summed.

    Overlapping intervals count as often as they overlap. Prefix sums over the sorted starts
    and ends make it O((n + m) log n); int64 arithmetic wraps around, and the difference of
    the two terms is right all the same.
    """
    total = np.zeros(len(times), dtype=np.int64)
    for column, sign in (("start_ns", 1), ("end_ns", -1)):
        edges = np.sort(intervals[column].to_numpy())
        sums = np.append(0, np.cumsum(edges))
        count = np.searchsorted(edges, times)
        total += sign * (count * times - sums[count])
    return total


def _idle_per_window(
    segments: pl.DataFrame, versions: pl.DataFrame, topology: Topology, pool: str
) -> list[float | None] | None:
    devices = [device.id for device in topology.devices if device.pool == pool]
    if not devices or versions.is_empty():
        return None
    states = [s for s in segments["state"].unique().to_list() if kind(s) == "bubble"]
    bubbles = segments.filter(pl.col("device").is_in(devices) & pl.col("state").is_in(states))
    start, end = (versions[column].to_numpy() for column in ("start_ns", "end_ns"))
    until, since = np.split(covered_before(bubbles, np.concatenate([end, start])), 2)
    idle = until - since
    return list((idle / ((end - start) * len(devices))).tolist())


def _trained_per_window(
    samples: pl.DataFrame, versions: pl.DataFrame
) -> tuple[list[int | None], list[int | None]]:
    """Return the trained tokens and the trained samples of each window."""
    trained = samples.filter((pl.col("fate") == "trained") & pl.col("consumed_ns").is_not_null())
    ordered = trained.select(
        "consumed_ns", n=pl.col("prompt_tokens") + pl.col("response_tokens")
    ).sort("consumed_ns")
    at = ordered["consumed_ns"].to_numpy()
    start, end = (np.searchsorted(at, versions[c].to_numpy()) for c in ("start_ns", "end_ns"))
    sums = np.append(0, ordered["n"].fill_null(0).cum_sum().to_numpy())
    known = np.append(0, ordered["n"].is_not_null().cum_sum().to_numpy())
    lengths, count = (known[end] - known[start]).tolist(), (end - start).tolist()
    if not known[-1]:
        return [None] * len(count), [n if len(ordered) else None for n in count]
    tokens = (sums[end] - sums[start]).tolist()
    told = zip(tokens, lengths, count, strict=True)
    return [tokens_of_all(*window) for window in told], count
