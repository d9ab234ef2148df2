"""Device samples joined with the ledger: in which state a device was when it was sampled.

Problem: a span says that a device was given work, a sample says what the device did. Method: a
sample stands for the time since the sample before it, since the driver reports means over the
past; where that time crosses the borders of states it is cut there. A gap in the samples stays
out: what is longer than `LONGEST_INTERVALS` times the usual distance belongs to no sample.

Worked example: samples at 0, 1 and 2 s with utilization -, 0.2 and 1.0 over update_actor 0-1.5 and
generate 1.5-2 give update_actor 1 s at 0.2 and 0.5 s at 1.0, generate 0.5 s at 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

Window = tuple[int, int]

#: A sample after a longer pause than this many usual distances says nothing of the pause.
LONGEST_INTERVALS: Final = 3.0


def joined(
    segments: pl.DataFrame, counters: pl.DataFrame, names: Sequence[str], window: Window
) -> pl.DataFrame:
    """Return pieces (device, state, start_ns, end_ns, and one column per counter of `names`).

    `segments` are those of `ledger.sweep`. A counter that the device does not have is null.
    Devices without samples have no row.
    """
    values = _values(counters, names, window)
    pieces = []
    for device in segments["device"].unique().cast(pl.String).sort().to_list():
        mine = values.filter(pl.col("lane") == device)
        if len(mine) > 1:
            spans = segments.filter(pl.col("device").cast(pl.String) == device)
            pieces.append(_pieces(device, spans, mine, window))
    if not pieces:
        return values.clear().select(
            pl.lit("").alias("device"), pl.lit("").alias("state"),
            pl.lit(0).alias("start_ns"), pl.lit(0).alias("end_ns"), *names,
        ).clear()  # fmt: skip
    return pl.concat(pieces)


def _values(counters: pl.DataFrame, names: Sequence[str], window: Window) -> pl.DataFrame:
    """Return one row per device and sample: lane, ts_ns, and the counters as columns."""
    chosen = counters.filter(
        pl.col("name").cast(pl.String).is_in(list(names)) & pl.col("ts_ns").is_between(*window)
    ).with_columns(pl.col("name", "lane").cast(pl.String))
    wide = chosen.pivot(
        on="name", index=["lane", "ts_ns"], values="value", aggregate_function="last"
    )
    missing = [pl.lit(None, pl.Float64).alias(name) for name in names if name not in wide.columns]
    return wide.with_columns(*missing).select("lane", "ts_ns", *names).sort("lane", "ts_ns")


def _pieces(
    device: str, spans: pl.DataFrame, samples: pl.DataFrame, window: Window
) -> pl.DataFrame:
    spans = spans.sort("start_ns")
    starts = spans["start_ns"].to_numpy()
    times = samples["ts_ns"].to_numpy()
    usual = np.median(np.diff(times))
    edges = np.unique(np.concatenate([starts, spans["end_ns"].to_numpy(), times]))
    edges = edges[(edges >= window[0]) & (edges <= window[1])]
    begin, end = edges[:-1], edges[1:]
    state = np.searchsorted(starts, begin, side="right") - 1
    # The sample that ends the stretch a piece lies in, and where that stretch begins.
    sample = np.searchsorted(times, end, side="left")
    inside = (state >= 0) & (sample > 0) & (sample < len(times))
    begin, end, state, sample = begin[inside], end[inside], state[inside], sample[inside]
    near = times[sample] - times[sample - 1] <= LONGEST_INTERVALS * usual
    columns = samples.drop("lane", "ts_ns")[sample[near].tolist()]
    return pl.DataFrame(
        {
            "device": pl.repeat(device, int(near.sum()), eager=True),
            "state": spans["state"].cast(pl.String)[state[near].tolist()],
            "start_ns": begin[near],
            "end_ns": end[near],
        }
    ).hstack(columns)
