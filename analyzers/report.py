"""Puts the results of the analyzers together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import polars as pl

from rlinsight.analyzers.device_time.bubbles import bubbles
from rlinsight.analyzers.device_time.causes import Evidence, evidence_intervals
from rlinsight.analyzers.device_time.ledger import ledger, sweep
from rlinsight.analyzers.device_time.merging import idle_segments, merged_bubbles
from rlinsight.analyzers.device_time.occupancy import clip, occupancy
from rlinsight.analyzers.device_time.overlap import outside_steps, overlap, run_ahead
from rlinsight.analyzers.device_time.per_window import clipped, version_rows
from rlinsight.analyzers.device_time.pools import pool_reports
from rlinsight.analyzers.device_time.steps import activity_times, step_rows
from rlinsight.analyzers.device_time.throughput import throughput
from rlinsight.analyzers.device_time.window import choose_window
from rlinsight.analyzers.devices.report import device_report
from rlinsight.analyzers.engines.balance import balance
from rlinsight.analyzers.engines.slots import slot_use
from rlinsight.analyzers.framework.defects import Defect
from rlinsight.analyzers.framework.idle_figures import idle_figures
from rlinsight.analyzers.framework.known_defects import known_defects
from rlinsight.analyzers.framework.metrics_only import metrics_only
from rlinsight.analyzers.header import header
from rlinsight.analyzers.health.dead import SILENT_S
from rlinsight.analyzers.health.liveness import Liveness, liveness
from rlinsight.analyzers.health.stalls import needed_prompts
from rlinsight.analyzers.lengths.growth import step_growth
from rlinsight.analyzers.lengths.rank_tokens import step_sizes
from rlinsight.analyzers.lengths.statistics import Lengths, lengths
from rlinsight.analyzers.quality.guard import Quality, quality
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.staleness.coverage import Coverage, coverage
from rlinsight.analyzers.staleness.lags import cohort, staleness, trained_in
from rlinsight.analyzers.staleness.tokens import token_account
from rlinsight.analyzers.sync.stages import syncs
from rlinsight.analyzers.tables import Tables, read_tables
from rlinsight.analyzers.trust import doubts, trust
from rlinsight.analyzers.verdict import verdict
from rlinsight.trace.process import Process
from rlinsight.trace.reader import Trace

Window = tuple[int, int]


def build(trace: Trace, asked: Window | None, lanes: Sequence[str] | None) -> Report:
    """Return the report of `trace` over the window `asked`, or over the one that is chosen.

    What does not need the ledger is worked out beside it, on another core.
    """
    tables = read_tables(trace, lanes)
    info = choose_window(tables, trace.time_range, asked)
    window = (info.start_ns, info.end_ns)
    with ThreadPoolExecutor(max_workers=1) as beside:
        slots = beside.submit(slot_use, tables.requests, tables.counters, tables.topology, window)
        length = beside.submit(_lengths, tables, window)
        activities = beside.submit(
            activity_times, tables.spans, tables.topology, info.end_ns, window
        )
        alive = beside.submit(_liveness, trace, tables)
        covered = beside.submit(_coverage, tables, window)
        lags = beside.submit(staleness, tables.samples, tables.requests, window=window)
        tokens = beside.submit(token_account, tables.requests, tables.samples, window=window)
        learning = beside.submit(_quality, tables, window)

        segments, known = _segments(tables, window)
        merged, idle = merged_bubbles(idle_segments(segments, tables.topology))
        even = beside.submit(balance, tables, merged, window)
        ahead = beside.submit(run_ahead, tables.samples, window)
        spent = ledger(segments)
        pools = pool_reports(spent, tables.topology, tables.metrics, slots.result(), window)
        found = bubbles(idle, merged, known, tables.counters)
        windows = clipped(tables.versions, window)
        rows = version_rows(segments, windows, tables.samples, tables.topology)
        # Of some lanes' devices alone it would not be that of the run's two sides.
        both = overlap(segments, window) if lanes is None else None
        trusted = trust(trace, tables, window, pools)
        steps = tuple(step_rows(tables.spans, tables.samples))
        doubtful = doubts(trusted, info, len(rows), exit_code=trace.manifest.exit_code, lanes=lanes)
        devices = device_report(tables, segments, window)
        return Report(
            run=header(trace),
            window=info,
            liveness=alive.result(),
            verdict=verdict(pools, found, both, alive.result(), even.result().replicas, doubtful),
            throughput=throughput(tables.samples, window, len(trace.topology.devices), rows),
            pools=pools,
            bubbles=found,
            versions=tuple(rows),
            overlap=both,
            slots=slots.result(),
            run_ahead=ahead.result(),
            outside_steps=outside_steps(tables.spans, window),
            staleness=lags.result(),
            tokens=tokens.result(),
            coverage=covered.result(),
            lengths=length.result(),
            balance=even.result(),
            devices=devices,
            sync=syncs(tables.spans, tables.markers, tables.topology, window, tables.counters),
            quality=learning.result(),
            defects=_defects(trace, tables),
            idle_figures=idle_figures(
                tables.metrics, tables.spans, tables.counters, tables.topology, window
            ),
            metrics_only=None if pools else metrics_only(tables.metrics, trace.mode),
            activities=tuple(activities.result()),
            steps=steps,
            step_growth=step_growth(step_sizes(steps, tables.metrics_by_step)),
            trust=trusted,
            segments=segments,
        )


def _lengths(tables: Tables, window: Window) -> Lengths:
    return lengths(
        tables.samples,
        tables.requests,
        window=window,
        topology=tables.topology,
        counters=tables.counters,
        spans=tables.spans,
        metrics=tables.metrics_by_step,
        config=tables.config,
    )


def _coverage(tables: Tables, window: Window) -> Coverage:
    return coverage(
        tables.spans,
        tables.samples,
        tables.requests,
        topology=tables.topology,
        versions=tables.versions,
        window=window,
        config=tables.config,
    )


def _quality(tables: Tables, window: Window) -> Quality:
    metrics = tables.metrics_by_step
    return quality(
        trained_in(tables.samples, window),
        metrics.filter(pl.col("ts_ns").is_between(*window)),
        settled=cohort(tables.samples, tables.requests, window),
        validations=metrics,
    )


def _defects(trace: Trace, tables: Tables) -> tuple[Defect, ...]:
    return known_defects(
        metrics=tables.metrics,
        spans=tables.spans,
        markers=tables.markers,
        topology=tables.topology,
        started_ns=trace.time_range[0] if trace.time_range else None,
        ended=trace.manifest.ended_ns is not None,
    )


def _segments(tables: Tables, window: Window) -> tuple[pl.DataFrame, Evidence]:
    known = Evidence(
        tables.spans,
        tables.requests,
        tables.samples,
        tables.markers,
        tables.topology,
        window,
    )
    intervals = pl.concat([occupancy(tables, window), clip(evidence_intervals(known), window)])
    devices = [device.id for device in tables.topology.devices]
    return sweep(intervals, devices, window), known


def _liveness(trace: Trace, tables: Tables) -> Liveness:
    return liveness(
        spans=tables.spans,
        requests=tables.requests,
        samples=tables.samples,
        markers=tables.markers,
        counters=tables.counters,
        topology=tables.topology,
        processes=trace.processes,
        now_ns=_now_ns(trace.processes, tables.end_ns),
        needed=needed_prompts(tables.config, tables.mode),
        ended=trace.manifest.ended_ns is not None,
        succeeded=trace.manifest.exit_code == 0,
    )


def _now_ns(processes: Sequence[Process], end_ns: int) -> int:
    """A running trace is judged now; one that ended or was cut off, at its last record."""
    now_ns = time.time_ns()
    heard = max((p.flushed_ns for p in processes if p.ended_ns is None), default=0)
    return now_ns if now_ns - heard < SILENT_S * 1e9 else end_ns
