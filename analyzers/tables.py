"""The tables of a trace, read once, with what several analyzers need beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import polars as pl

from rlinsight.analyzers.device_time.versions import version_windows
from rlinsight.analyzers.quality.step_axis import on_step_axis
from rlinsight.errors import TraceError
from rlinsight.trace.reader import Trace
from rlinsight.trace.topology import Lane, Topology


@dataclass(frozen=True)
class Tables:
    """Whole tables of a trace; `end_ns` is the last time in it, 0 in an empty one."""

    spans: pl.DataFrame
    requests: pl.DataFrame
    samples: pl.DataFrame
    markers: pl.DataFrame
    counters: pl.DataFrame
    metrics: pl.DataFrame
    versions: pl.DataFrame
    topology: Topology
    config: Mapping[str, Any]
    mode: str | None
    end_ns: int

    @property
    def steps(self) -> pl.DataFrame:
        """Return the driver's ended training steps, in order."""
        return training_steps(self.spans)

    @cached_property
    def metrics_by_step(self) -> pl.DataFrame:
        """Return the metrics under training steps, also where they were logged under versions."""
        return on_step_axis(self.metrics, self.steps, self.mode, self.config)[0]


def training_steps(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the ended `step` spans in order, without those that an exception left.

    The last step of a fully asynchronous run finds the queue closed and trains nothing.
    """
    steps = spans.filter((pl.col("activity") == "step") & pl.col("end_ns").is_not_null())
    return steps.filter(attr("error").is_null()).sort("start_ns")


def attr(key: str) -> pl.Expr:
    """Return the value of attribute `key`, null where a row does not have it."""
    pair = pl.element()
    value = pl.when(pair.struct.field("key") == key).then(pair.struct.field("value"))
    return pl.col("attrs").list.eval(value.drop_nulls()).list.first()


def read_tables(trace: Trace, lanes: Sequence[str] | None = None) -> Tables:
    """Read all tables of `trace`; with `lanes`, only the devices of these lanes count.

    Raises TraceError for a lane that the trace does not have.
    """
    topology = trace.topology if lanes is None else _restricted(trace.topology, lanes)
    markers = trace.markers.collect()
    end_ns = trace.time_range[1] if trace.time_range else 0
    with ThreadPoolExecutor(1) as beside:
        requests = beside.submit(trace.requests.collect)
        samples = beside.submit(trace.samples.collect)
        # There may be ten million of them, read in hundreds of pieces.
        spans = trace.table("spans", coded=("activity", "lane")).collect().rechunk()
    return Tables(
        spans=spans,
        requests=requests.result(),
        samples=samples.result(),
        markers=markers,
        counters=trace.counters.collect(),
        metrics=trace.metrics.collect(),
        versions=version_windows(markers, trace.topology, end_ns),
        topology=topology,
        config=trace.manifest.config,
        mode=trace.mode,
        end_ns=end_ns,
    )


def _restricted(topology: Topology, lanes: Sequence[str]) -> Topology:
    known = {lane.id: lane for lane in topology.lanes}
    unknown = [lane for lane in lanes if lane not in known]
    if unknown:
        raise TraceError(
            f"expected a lane of this trace ({', '.join(known) or 'it has none'}), "
            f"found `{unknown[0]}`"
        )
    kept = {device for lane in lanes for device in devices_of(known[lane], topology)}
    return Topology([d for d in topology.devices if d.id in kept], topology.lanes)


def devices_of(lane: Lane, topology: Topology) -> tuple[str, ...]:
    """Return the ids of the devices that a lane occupies.

    A trainer or rollouter lane that declares no device stands for its whole pool.
    """
    pool = _POOL_OF_DRIVER.get(lane.role)
    if lane.devices or pool is None:
        return tuple(lane.devices)
    return tuple(device.id for device in topology.devices if device.pool == pool)


#: A driver stands for all devices of its pool; it is not bound to one.
_POOL_OF_DRIVER = {"trainer": "trainer", "rollouter": "rollout"}

Rows = TypeVar("Rows", pl.DataFrame, pl.LazyFrame)


def within(rows: Rows, window: tuple[int, int], start: str, end: str) -> Rows:
    """Return the rows whose interval [start, end) touches `window`; an open one reaches on."""
    first, last = window
    return rows.filter((pl.col(start) < last) & (pl.col(end).is_null() | (pl.col(end) > first)))
