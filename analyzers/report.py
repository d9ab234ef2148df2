"""Puts the results of the analyzers together."""

from __future__ import annotations

import polars as pl

from rlinsight.analyzers.bubbles import bubbles
from rlinsight.analyzers.causes import Evidence, evidence_intervals
from rlinsight.analyzers.header import header
from rlinsight.analyzers.ledger import ledger, sweep
from rlinsight.analyzers.occupancy import clip, occupancy
from rlinsight.analyzers.per_window import clipped, version_rows
from rlinsight.analyzers.pools import pool_reports
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.steps import activity_times, step_rows
from rlinsight.analyzers.throughput import throughput
from rlinsight.analyzers.trust import trust
from rlinsight.analyzers.versions import version_windows
from rlinsight.analyzers.window import choose_window
from rlinsight.trace.reader import Trace


def build(trace: Trace, asked: tuple[int, int] | None) -> Report:
    """Return the report of `trace` over the window `asked`, or over the one that is chosen."""
    spans, samples = trace.spans.collect(), trace.samples.collect()
    markers, counters = trace.markers.collect(), trace.counters.collect()
    metrics, topology = trace.metrics.collect(), trace.topology
    end_ns = trace.time_range[1] if trace.time_range else 0
    versions = version_windows(markers, topology, end_ns)
    info = choose_window(spans, samples, versions, trace.time_range, asked)
    window = (info.start_ns, info.end_ns)
    known = Evidence(
        _within(spans, window),
        trace.table("requests", window=window).collect(),
        samples,
        markers,
        topology,
        window,
    )
    devices = [device.id for device in topology.devices]
    intervals = pl.concat([occupancy(trace, window), clip(evidence_intervals(known), window)])
    segments = sweep(intervals, devices, window)
    pools = pool_reports(ledger(segments), topology, metrics)
    rows = version_rows(segments, clipped(versions, window), samples, topology)
    return Report(
        run=header(trace),
        window=info,
        throughput=throughput(samples, window, len(devices), rows),
        pools=pools,
        bubbles=bubbles(segments, known, counters),
        versions=tuple(rows),
        activities=tuple(activity_times(spans, topology, info.end_ns)),
        steps=tuple(step_rows(spans, samples)),
        trust=trust(trace, spans, pools),
    )


def _within(spans: pl.DataFrame, window: tuple[int, int]) -> pl.DataFrame:
    start, end = window
    return spans.filter(
        (pl.col("start_ns") < end) & (pl.col("end_ns").is_null() | (pl.col("end_ns") > start))
    )
