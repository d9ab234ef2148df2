"""Is this trace whole, and may its figures be believed?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rlinsight.trace.checks import (
    backward_rows,
    dead_processes,
    overlaps,
    request_counts,
    rows_per_lane,
    sample_counts,
    unknown_names,
)
from rlinsight.trace.findings import find, note
from rlinsight.trace.process import Process
from rlinsight.trace.reader import Trace
from rlinsight.trace.schema import TABLES
from rlinsight.trace.validation import Clock, LaneCheck, TableCheck, Validation

if TYPE_CHECKING:
    import polars as pl


def validate(trace: Trace) -> Validation:
    """Check a trace. Raises TraceError when one of its tables cannot be read."""
    for table in trace.files.compacted.values():
        table.check()
    tables: dict[str, pl.LazyFrame] = {name: trace.table(name) for name in TABLES}
    manifest = trace.manifest
    facts = Validation(
        path=trace.path,
        run_id=manifest.run_id,
        mode=trace.mode,
        is_live=trace.is_live,
        time_range=trace.time_range,
        tables=_tables(trace),
        lanes=_lanes(trace),
        open_spans=_open_spans(trace),
        requests=request_counts(tables["requests"]),
        samples=sample_counts(tables["samples"]),
        clocks=_clocks(trace),
        overlaps=overlaps(tables["spans"], trace.topology),
        dead=dead_processes(_on_one_clock(trace), manifest.exit_code),
        hooks=manifest.hooks,
        hook_share=_share_of_wall_time(trace, manifest.hook_ns),
        hook_share_largest=_share_of_wall_time(trace, manifest.largest_hook_ns),
        unknown_names=unknown_names(tables),
        backward_rows=backward_rows(tables),
        skipped={skipped.path: skipped.reason for skipped in trace.skipped},
        processes=len(trace.processes),
    )
    return replace(facts, findings=tuple(find(facts)), notes=tuple(note(facts)))


def _tables(trace: Trace) -> dict[str, TableCheck]:
    import polars as pl

    sizes, dropped = trace.bytes_on_disk, trace.manifest.dropped
    return {
        name: TableCheck(
            rows=trace.table(name).select(pl.len()).collect().item(),
            bytes=sizes.get(name, 0),
            dropped=dropped.get(name, 0),
        )
        for name in TABLES
    }


def _lanes(trace: Trace) -> tuple[LaneCheck, ...]:
    counted = rows_per_lane({name: trace.table(name) for name in TABLES})
    seen = {lane: (rows, last) for lane, rows, last in counted.iter_rows()}
    roles = {lane.id: str(lane.role) for lane in trace.topology.lanes}
    uncalibrated = trace.uncalibrated_lanes
    return tuple(
        LaneCheck(
            lane,
            roles.get(lane) or _sampled(lane, trace),
            *seen.get(lane, (0, None)),
            lane not in uncalibrated,
        )
        for lane in (*roles, *(lane for lane in seen if lane not in roles))
    )


def _sampled(lane: str, trace: Trace) -> str | None:
    """Return what an undeclared lane samples: a device, a node, or a process of a node."""
    if any(device.id == lane for device in trace.topology.devices):
        return "device"
    nodes = trace.manifest.nodes
    if lane in nodes:
        return "host"
    return "process" if lane.rpartition("/")[0] in nodes else None


def _open_spans(trace: Trace) -> int:
    import polars as pl

    return int(trace.spans.select(pl.col("end_ns").is_null().sum()).collect().item())


def _clocks(trace: Trace) -> tuple[Clock, ...]:
    clocks, nodes = trace.manifest.clock, trace.manifest.nodes
    bad = clocks.uncalibrated(nodes)
    return tuple(
        Clock(node, clocks.of(node).residual_ns, clocks.of(node).drift, node not in bad)
        for node in nodes
    )


def _on_one_clock(trace: Trace) -> Iterator[Process]:
    for process in trace.processes:
        clock = trace.manifest.clock.of(process.node)
        yield replace(process, flushed_ns=clock.corrected(process.flushed_ns))


def _share_of_wall_time(trace: Trace, hook_ns: int) -> float | None:
    if not trace.processes or trace.time_range is None:
        return None
    wall_ns = trace.time_range[1] - trace.time_range[0]
    return hook_ns / wall_ns if wall_ns else None
