"""Spans of a few lanes as a Kineto trace of one rank: a lane is a stream, a span a kernel."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

import rlinsight
from rlinsight.analyzers.device_time.intervals import union


def chosen(trace: rlinsight.Trace, kernels: int) -> pl.DataFrame:
    """Return the spans (lane, activity, start_ns, end_ns) of as many ranks as make `kernels`."""
    ranks = [lane.id for lane in trace.topology.lanes if lane.role == "trainer_rank"]
    columns = trace.spans.select("lane", "activity", "start_ns", "end_ns")
    each = columns.filter(pl.col("lane") == ranks[0]).select(pl.len()).collect().item()
    lanes = ranks[: max(1, kernels // each)]
    return columns.filter(pl.col("lane").is_in(lanes)).collect()


def idle_seconds(trace: rlinsight.Trace, kernels: int) -> float:
    """Return the time between the spans of each chosen lane, summed."""
    busy = union(chosen(trace, kernels), ["lane"])
    gaps = busy.group_by("lane").agg(
        ns=pl.col("end_ns").max()
        - pl.col("start_ns").min()
        - (pl.col("end_ns") - pl.col("start_ns")).sum()
    )
    return float(gaps["ns"].sum()) / 1e9


def write(path: Path, trace: rlinsight.Trace, kernels: int) -> None:
    """Write the chosen spans, each with the launch on the host that it is to be linked to."""
    spans = chosen(trace, kernels)
    streams = {lane: i for i, lane in enumerate(spans["lane"].unique().sort(), start=1)}
    events = []
    for number, (lane, name, start, end) in enumerate(spans.iter_rows(), start=1):
        ts, dur = start / 1e3, (end - start) / 1e3
        linked = {"correlation": number, "stream": streams[lane]}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
             "ts": ts - 5, "dur": 2, "args": {"correlation": number}},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": streams[lane],
             "ts": ts, "dur": dur, "args": {**linked, "device": 0}},
        ]  # fmt: skip
    document = {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}
    path.write_text(json.dumps(document))
