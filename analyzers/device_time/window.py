"""The window that the headline figures are of: the steady part of the run."""

from __future__ import annotations

import numpy as np
import polars as pl

from rlinsight.analyzers.device_time.steady import mser_cut
from rlinsight.analyzers.result import WindowInfo
from rlinsight.analyzers.tables import Tables
from rlinsight.errors import TraceError

Window = tuple[int, int]

#: With fewer version windows than this there is no telling warm-up from the rest.
MIN_VERSIONS = 4


def choose_window(tables: Tables, time_range: Window | None, asked: Window | None) -> WindowInfo:
    """Return `asked`, else the steady version windows, else the training steps, else all.

    The first version window holds initialization and the warm-up batches, so it is always
    cut; MSER-5 on the trained tokens per second of each window decides how many more go.
    What follows the end of the last training step is teardown. `asked` is cut to what was
    recorded. Raises TraceError for a window of which nothing is, or when nothing with a time
    was recorded.
    """
    versions = tables.versions
    if asked is not None:
        return _info(_recorded(asked, time_range), versions, "asked for")
    training = _training(tables.steps)
    if training is None:
        if time_range is None or time_range[0] >= time_range[1]:
            raise TraceError(
                "expected a trace with spans or requests to analyze, found none; "
                "`rlinsight validate` lists what the folder holds"
            )
        return _info(time_range, versions, "everything recorded, since no training step has ended")
    return _steady(training, tables.samples, versions)


def _steady(training: Window, samples: pl.DataFrame, versions: pl.DataFrame) -> WindowInfo:
    start, end = training
    inside = versions.filter((pl.col("start_ns") < end) & (pl.col("end_ns") > start))
    if len(inside) < MIN_VERSIONS:
        cut = (
            f"all training steps: telling warm-up from the rest takes {MIN_VERSIONS} version "
            f"windows, found {len(inside)}"
        )
        return _info(training, versions, cut)
    rates = token_rates(inside, samples, end)
    warm_up = max(1, mser_cut(rates))
    first = inside["start_ns"][warm_up]
    cut = f"{warm_up} of {len(inside)} version windows cut as warm-up (MSER-5), teardown cut"
    return _info((max(first, start), end), versions, cut)


def token_rates(versions: pl.DataFrame, samples: pl.DataFrame, end_ns: int) -> list[float]:
    """Return the trained tokens per second of each version window, in order."""
    trained = samples.filter((pl.col("fate") == "trained") & pl.col("consumed_ns").is_not_null())
    tokens = trained.select("consumed_ns", n=pl.col("prompt_tokens") + pl.col("response_tokens"))
    edges = np.append(versions["start_ns"].to_numpy(), min(versions["end_ns"][-1], end_ns))
    ordered = tokens.drop_nulls().sort("consumed_ns")
    sums = np.append(0, ordered["n"].cum_sum().to_numpy())
    at_edges = sums[np.searchsorted(ordered["consumed_ns"].to_numpy(), edges)]
    seconds = np.diff(edges) / 1e9
    # Two versions that go live in the same nanosecond leave a window that trains nothing.
    rates = np.zeros(len(seconds))
    np.divide(np.diff(at_edges), seconds, where=seconds > 0, out=rates)
    return list(rates.tolist())


def _training(steps: pl.DataFrame) -> Window | None:
    if steps.is_empty():
        return None
    first, last = steps["start_ns"].min(), steps["end_ns"].max()
    assert isinstance(first, int)
    assert isinstance(last, int)
    return (first, last) if first < last else None


def _recorded(asked: Window, time_range: Window | None) -> Window:
    """Return what was recorded of the window `asked`: nothing is known of the time around it."""
    if asked[0] >= asked[1]:
        raise TraceError(
            f"expected a window that ends after it starts, found {asked[0]} to {asked[1]} ns"
        )
    first, last = time_range or asked
    start, end = max(asked[0], first), min(asked[1], last)
    if start >= end:
        begins, ends = ((time - first) / 1e9 for time in asked)
        raise TraceError(
            f"expected a window within the {(last - first) / 1e9:.1f} s that were recorded, found "
            f"{begins:.1f} to {ends:.1f} s"
        )
    return start, end


def _info(window: Window, versions: pl.DataFrame, cut: str) -> WindowInfo:
    start, end = window
    inside = versions.filter((pl.col("start_ns") < end) & (pl.col("end_ns") > start))["version"]
    low, high = inside.min(), inside.max()
    return WindowInfo(
        start_ns=start,
        end_ns=end,
        duration_s=(end - start) / 1e9,
        versions=(low, high) if isinstance(low, int) and isinstance(high, int) else None,
        cut=cut,
    )
