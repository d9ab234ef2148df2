"""Which samples each trigger step of the trainer was waiting for, and when they were there.

A trigger step is one batch that the trainer collects: with a weight sync every k of them, k
make up a version window. Its wait is all `wait_samples` of the driver since the batch before;
its samples are those taken from the queue since the (last) wait began. Samples are counted in
units: trajectories of one group are handed over together, so a group is one unit, as old as
its oldest trajectory and there when its last one is complete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from rlinsight.analyzers.staleness.identity import key
from rlinsight.analyzers.staleness.lags import last_request_ns
from rlinsight.trace.topology import Topology

Ints = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Trigger:
    """A batch that the trainer waited for; times in epoch nanoseconds.

    `position` counts the batches of one version from 1. `ready_ns` is `end_ns` less the
    wait: what the trainer did between two waits for one batch counts as work before it.
    `available_ns` is when the last of its units was there, `stale_units` are those with an
    older version than `version`; both None when that is not known of each unit.
    """

    version: int
    position: int
    ready_ns: int
    end_ns: int
    units: int
    available_ns: int | None
    stale_units: int | None

    @property
    def wait_ns(self) -> int:
        """The measured wait."""
        return self.end_ns - self.ready_ns

    @property
    def stale_share(self) -> float | None:
        """The share of its units that are of an older version."""
        return None if self.stale_units is None else self.stale_units / self.units


def trigger_steps(
    spans: pl.DataFrame,
    samples: pl.DataFrame,
    requests: pl.DataFrame | None,
    topology: Topology | None,
    versions: pl.DataFrame | None,
) -> tuple[list[Trigger], pl.DataFrame]:
    """Return the trigger steps in time order, and the units that could have fed them.

    A trajectory that was filtered or aborted could not, one dropped for its age could have.
    Units have the columns version, available_ns (null: unknown) and trigger (the index of
    the wait that ended with it, null: never consumed). A batch whose version is not known is
    left out.
    """
    waits = _waits(spans, topology)
    units = _units(samples, requests, waits["start_ns"].to_numpy())
    steps = _steps(waits, units)
    version = pl.coalesce("param_version", "trained_version")
    if versions is not None and not versions.is_empty():
        live = versions.select(live_ns="start_ns", by_time="version").sort("live_ns")
        steps = steps.join_asof(live, left_on="start_ns", right_on="live_ns")
        version = pl.coalesce(version, "by_time")
    steps = steps.with_columns(version=version).filter(pl.col("version").is_not_null())
    steps = steps.with_columns(
        position=pl.int_range(1, pl.len() + 1).over("version"),
        stale_units=pl.when("versions_known").then("stale_units"),
    )
    return [Trigger(**row) for row in steps.select(*_FIELDS).iter_rows(named=True)], units


_FIELDS = tuple(Trigger.__dataclass_fields__)


def _waits(spans: pl.DataFrame, topology: Topology | None) -> pl.DataFrame:
    """Return the driver's waits, overlapping ones joined, in time order."""
    waits = spans.filter(
        (pl.col("activity") == "wait_samples") & (pl.col("end_ns") >= pl.col("start_ns"))
    )
    drivers = [lane.id for lane in topology.lanes if lane.role == "trainer"] if topology else []
    if drivers:
        waits = waits.filter(pl.col("lane").is_in(drivers))
    apart = pl.col("start_ns") >= pl.col("end_ns").cum_max().shift(1, fill_value=-1)
    return (
        waits.sort("start_ns")
        .group_by(apart.cum_sum().alias("wait"), maintain_order=True)
        .agg(
            pl.col("start_ns").first(),
            pl.col("end_ns").max(),
            pl.col("param_version").drop_nulls().first(),
        )
        .select(pl.int_range(pl.len()).alias("trigger"), "start_ns", "end_ns", "param_version")
    )


def _units(samples: pl.DataFrame, requests: pl.DataFrame | None, starts: Ints) -> pl.DataFrame:
    usable = _dated(
        samples.filter(pl.col("fate").is_in(["filtered", "aborted"]).not_().fill_null(value=True)),
        requests,
    )
    consumed = usable["consumed_ns"].fill_null(_NEVER).to_numpy()
    wait = pl.Series(np.searchsorted(starts, consumed, side="right") - 1, dtype=pl.Int64)
    taken = pl.when(pl.col("wait") >= 0).then("wait")
    return (
        usable.with_columns(wait=wait)
        .with_columns(trigger=taken, unit=pl.coalesce(key("group_uid"), key("sample_uid")))
        .group_by("unit", "trigger")
        .agg(
            version=_unless_missing("version_start", pl.col("version_start").min()),
            available_ns=_unless_missing("produced_ns", pl.col("produced_ns").max()),
            trained_version=pl.col("trained_version").max(),
        )
        .drop("unit")
    )


def _unless_missing(column: str, value: pl.Expr) -> pl.Expr:
    return pl.when(pl.col(column).null_count() == 0).then(value)


def _dated(samples: pl.DataFrame, requests: pl.DataFrame | None) -> pl.DataFrame:
    """Where a sample's completion was not recorded, take the end of its last request."""
    if requests is None or samples["produced_ns"].null_count() == 0:
        return samples
    last = last_request_ns(requests)
    joined = samples.with_columns(key=key("sample_uid")).join(
        last, on="key", how="left", maintain_order="left"
    )
    return joined.with_columns(produced_ns=pl.coalesce("produced_ns", "last_ns"))


def _steps(waits: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """Return one row per batch: its waits joined with its units."""
    batches = units.filter(pl.col("trigger").is_not_null()).join(
        waits.select("trigger", "param_version"), on="trigger"
    )
    live = pl.coalesce("param_version", pl.col("trained_version").max())
    batches = batches.group_by("trigger").agg(
        units=pl.len(),
        available_ns=_unless_missing("available_ns", pl.col("available_ns").max()),
        versions_known=pl.col("version").null_count() == 0,
        stale_units=(pl.col("version") < live).sum(),
        trained_version=pl.col("trained_version").max(),
    )
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        waits.join(batches, on="trigger", how="left", maintain_order="left")
        # A wait that brought nothing belongs to the batch that came with a later one.
        .with_columns(batch=pl.when(pl.col("units").is_not_null()).then("trigger"))
        .with_columns(pl.col("batch").backward_fill())
        .filter(pl.col("batch").is_not_null())
        .with_columns(wait_ns=length.sum().over("batch"))
        .filter(pl.col("units").is_not_null())
        .with_columns(ready_ns=pl.col("end_ns") - pl.col("wait_ns"))
        .sort("start_ns")
    )
