"""From a trace to what the gate keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from rlinsight.analyzers.gate.columns import MOST, window_columns, window_edges
from rlinsight.analyzers.gate.identity import identity
from rlinsight.analyzers.gate.observation import Column, Observation, Scalar
from rlinsight.analyzers.report import build
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.tables import read_tables
from rlinsight.analyzers.verdict import Verdict
from rlinsight.errors import TraceError
from rlinsight.trace.reader import Trace

OVERHEAD: Final = "recording_overhead"


def observe(trace: Trace) -> Observation:
    """Return the observation of a finished run.

    Raises TraceError for one that failed, that stands still, or that was a smoke run: its
    figures are of something else than the training that it stands for. An alarm about a run that
    succeeded all the same is a doubt.
    """
    _usable(trace)
    report = build(trace, None, None)
    succeeded = trace.manifest.exit_code == 0
    if not succeeded:
        _alive(report)
    return observation(trace, report)


def observation(trace: Trace, report: Report, within: tuple[int, int] | None = None) -> Observation:
    """Return the observation of a run, however it ended, over its steady window.

    `within` (ns) is a part of that window, for what is to be compared over it alone.
    """
    tables = read_tables(trace)
    window = within or (report.window.start_ns, report.window.end_ns)
    logged, not_finite = _logged(tables.metrics, window)
    return Observation(
        source="trace",
        run_id=trace.manifest.run_id,
        recorded_ns=trace.manifest.started_ns or report.run.started_ns,
        identity=identity(trace.manifest),
        cut=report.window.cut,
        devices={name: pool.devices for name, pool in report.pools.items()},
        windows=window_columns(report, tables, window_edges(report, window)),
        logged=logged,
        not_finite=not_finite,
        scalars=_overhead(report),
        doubts=_doubts(report.verdict),
    )


def _overhead(report: Report) -> dict[str, Scalar]:
    share = report.trust.hook_share
    return {} if share is None else {OVERHEAD: Scalar(share, "share", "lower")}


def _usable(trace: Trace) -> None:
    code = trace.manifest.exit_code
    if code:
        raise TraceError(
            f"expected a run that succeeded, found exit code {code} in `{trace.path}`; the figures "
            "of a run that was cut short are no measurement"
        )
    if trace.manifest.notes.get("smoke"):
        raise TraceError(
            f"expected a run at full size, found a smoke run in `{trace.path}`; it checks the "
            "plumbing and measures nothing"
        )


def _alive(report: Report) -> None:
    if report.verdict.alarm is not None:
        raise TraceError(
            f"expected a run that came to its end, found an alarm: {report.verdict.alarm}"
        )


def _doubts(verdict: Verdict) -> tuple[str, ...]:
    return (*verdict.doubts, *((verdict.alarm,) if verdict.alarm is not None else ()))


def _logged(
    metrics: pl.DataFrame, window: tuple[int, int]
) -> tuple[dict[str, Column], Mapping[str, int]]:
    """Return the value of each logged metric at each step of the window, and what is no number.

    Several values of one step count by their mean. More than `MOST` steps are averaged in
    groups.
    """
    inside = metrics.filter(pl.col("ts_ns").is_between(*window) & pl.col("step").is_not_null())
    inside = inside.with_columns(pl.col("key").cast(pl.String), ok=pl.col("value").is_finite())
    bad = inside.filter(~pl.col("ok")).group_by("key").len()
    good = inside.filter("ok").group_by("step", "key").agg(pl.col("value").mean())
    steps = good["step"].unique().sort()
    rows = good.with_columns(row=pl.Series(np.searchsorted(steps, good["step"]), dtype=pl.Int64))
    columns = {
        str(key): _column(part["row"].to_numpy(), part["value"].to_numpy(), len(steps))
        for (key,), part in rows.sort("key").group_by("key", maintain_order=True)
    }
    return columns, dict(bad.sort("key").iter_rows())


def _column(rows: np.ndarray, values: np.ndarray, steps: int) -> Column:
    size = -(-steps // MOST)
    groups = -(-steps // size)
    sums = np.bincount(rows // size, values, groups)
    counts = np.bincount(rows // size, minlength=groups)
    return tuple(
        float(total / count) if count else None for total, count in zip(sums, counts, strict=True)
    )
