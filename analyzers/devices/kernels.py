"""Kernel windows, and whether spans, kernels and the driver's utilization tell the same story.

Three clocks saw a profiled stage: our span around the call (host), the profiler's rows of the
device, and the driver's samples. They must agree: the stage lies inside its span, and the share
of the stage in which a kernel ran (union over streams) is what the driver reports as
utilization, within `WITHIN`. The driver's means end at sample times, not at the stage's borders,
and are of whole periods of up to 1/6 s, so agreement is only asked of stages of a second or more.

Worked example: kernels on the device for 1.2 of 4 s, driver's mean utilization over these 4 s
0.34: 0.30 against 0.34, difference 0.04.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from rlinsight.analyzers.tables import attr
from rlinsight.trace.topology import Topology

#: Most that kernels' and driver's share may differ.
WITHIN: Final = 0.15
_LEAST_S: Final = 1.0
#: How far a stage may reach beyond its span: the device ends its work after the host's call.
_SPAN_SLACK_S: Final = 0.25
_TOP: Final = 5
_ACTIVITY: Final = {
    "actor_update": "update_actor",
    "actor_compute_log_prob": "old_log_prob",
    "ref_compute_log_prob": "ref_log_prob",
}


@dataclass(frozen=True)
class TopKernel:
    """All launches of one kernel in a window; `share` is of the window's time."""

    name: str
    count: int
    seconds: float
    share: float


@dataclass(frozen=True)
class KernelStage:
    """One profiled stage of one rank. Ratios are of the stage's duration.

    `busy` is the union of everything on the device, `communication` of collectives and
    `exposed_communication` the part of it that nothing else overlapped. `source` is `host`
    where the profile has no device rows, as on a CPU.

    `driver_utilization` is the driver's mean over the stage, `span_s` the length of the span
    around it (None: no such span); `agrees` says whether the three are within bounds, None
    where one is missing or the stage is shorter than a second.
    """

    lane: str
    role: str
    step: int | None
    source: str
    start_ns: int
    duration_s: float
    busy: float
    communication: float
    exposed_communication: float
    longest_gap_s: float
    launches: int
    launches_per_s: float
    top: tuple[TopKernel, ...]
    span_s: float | None
    driver_utilization: float | None
    difference: float | None
    agrees: bool | None


def kernel_stages(
    markers: pl.DataFrame, spans: pl.DataFrame, counters: pl.DataFrame, topology: Topology
) -> list[KernelStage]:
    """Return every profiled stage of the trace, in order of time."""
    rows = _with(markers, "kernel_window", _WINDOW)
    if rows.is_empty():
        return []
    top = _with(markers, "kernel_top", ("name", "count", "total_ns", "role"))
    devices = {lane.id: lane.devices[0] for lane in topology.lanes if lane.devices}
    use = counters.filter(pl.col("name").cast(pl.String) == "device_utilization").sort("ts_ns")
    return [
        _stage(row, _top(top, row), _span(spans, row), _driver(use, devices, row))
        for row in rows.sort("ts_ns", "lane").iter_rows(named=True)
    ]


_WINDOW: Final = (
    "role", "step", "source", "end_ns", "busy_ns", "communication_ns", "exposed_communication_ns",
    "longest_gap_ns", "launches",
)  # fmt: skip


def _with(markers: pl.DataFrame, kind: str, keys: tuple[str, ...]) -> pl.DataFrame:
    chosen = markers.filter(pl.col("kind").cast(pl.String) == kind)
    return chosen.select("ts_ns", pl.col("lane").cast(pl.String), *(attr(k).alias(k) for k in keys))


def _stage(
    row: dict[str, Any],
    top: tuple[TopKernel, ...],
    span: tuple[int, int] | None,
    utilization: float | None,
) -> KernelStage:
    start, end = row["ts_ns"], int(row["end_ns"])
    whole = end - start
    busy = int(row["busy_ns"]) / whole
    difference = None
    if utilization is not None and row["source"] == "device":
        difference = busy - utilization
    return KernelStage(
        lane=row["lane"],
        role=row["role"],
        step=None if row["step"] is None else int(row["step"]),
        source=row["source"],
        start_ns=start,
        duration_s=whole / 1e9,
        busy=busy,
        communication=int(row["communication_ns"]) / whole,
        exposed_communication=int(row["exposed_communication_ns"]) / whole,
        longest_gap_s=int(row["longest_gap_ns"]) / 1e9,
        launches=int(row["launches"]),
        launches_per_s=int(row["launches"]) / whole * 1e9,
        top=top,
        span_s=None if span is None else (span[1] - span[0]) / 1e9,
        driver_utilization=utilization,
        difference=difference,
        agrees=_agrees(difference, span, (start, end)),
    )


def _agrees(
    difference: float | None, span: tuple[int, int] | None, stage: tuple[int, int]
) -> bool | None:
    if difference is None or span is None or stage[1] - stage[0] < _LEAST_S * 1e9:
        return None
    slack = _SPAN_SLACK_S * 1e9
    inside = span[0] - slack <= stage[0] and stage[1] <= span[1] + slack
    return inside and abs(difference) <= WITHIN


def _top(rows: pl.DataFrame, window: dict[str, Any]) -> tuple[TopKernel, ...]:
    mine = rows.filter(
        (pl.col("ts_ns") == window["ts_ns"])
        & (pl.col("lane") == window["lane"])
        & (pl.col("role") == window["role"])
    )
    whole = int(window["end_ns"]) - window["ts_ns"]
    kernels = [
        TopKernel(name, int(count), int(ns) / 1e9, int(ns) / whole)
        for name, count, ns in mine.select("name", "count", "total_ns").iter_rows()
    ]
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.seconds, kernel.name))[:_TOP])


def _span(spans: pl.DataFrame, row: dict[str, Any]) -> tuple[int, int] | None:
    """Return the rank's span that overlaps the stage most."""
    start, end = row["ts_ns"], int(row["end_ns"])
    around = (
        spans.filter(
            (pl.col("lane").cast(pl.String) == row["lane"])
            & (pl.col("activity").cast(pl.String) == _ACTIVITY.get(row["role"], row["role"]))
            & (pl.col("start_ns") < end)
            & (pl.col("end_ns") > start)
        )
        .with_columns(
            both=pl.min_horizontal("end_ns", pl.lit(end))
            - pl.max_horizontal("start_ns", pl.lit(start))
        )
        .sort("both", descending=True)
    )
    if around.is_empty():
        return None
    return around["start_ns"][0], around["end_ns"][0]


def _driver(samples: pl.DataFrame, devices: dict[str, str], row: dict[str, Any]) -> float | None:
    """Return the driver's mean utilization of the stage's device, weighed by time."""
    mine = samples.filter(pl.col("lane").cast(pl.String) == devices.get(row["lane"], ""))
    times, values = mine["ts_ns"].to_numpy(), mine["value"].to_numpy()
    if len(times) < 2:
        return None
    start, end = row["ts_ns"], int(row["end_ns"])
    weights = times[1:].clip(start, end) - times[:-1].clip(start, end)
    known = weights.sum()
    return float((values[1:] * weights).sum() / known) if known > 0 else None
