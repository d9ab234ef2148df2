"""What can be wrong with the rows of a trace. Each check is a pure function of frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from rlinsight.trace.process import Process
from rlinsight.trace.schema import (
    ACTIVITIES,
    CONTAINER_ACTIVITIES,
    ENGINE_KINDS,
    FATES,
    FINISH_KINDS,
)
from rlinsight.trace.topology import Topology

#: Roles whose lanes do one thing at a time. A replica serves many requests at once.
SINGLE_ROLES: Final = frozenset({"trainer", "trainer_rank", "rollouter"})

#: Seconds by which a process must have fallen silent before the others to count as dead. At
#: the end of a good run Ray kills workers while others still finish.
DEAD_AFTER_S: Final = 1.5
DEAD_AFTER_GOOD_RUN_S: Final = 5.0

_KNOWN: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("requests", "engine_kind"): ENGINE_KINDS,
    ("requests", "finish"): FINISH_KINDS,
    ("samples", "fate"): FATES,
}


@dataclass(frozen=True)
class Overlap:
    """Spans of one lane that began before an earlier one had ended; `overlap_ns` in total."""

    lane: str
    spans: int
    overlap_ns: int
    example: str


@dataclass(frozen=True)
class RequestCounts:
    """Where the generation attempts stand: submitted = finished + aborted + in_flight + unknown.

    `finished` ended with `stop` or `length`, `aborted` with `abort` or `error`; `in_flight`
    has no end; `unknown` ended without a known reason.
    """

    submitted: int
    finished: int
    aborted: int
    in_flight: int
    unknown: int


@dataclass(frozen=True)
class SampleCounts:
    """Where the trajectories went, by fate: samples is the sum of all others but `unproduced`.

    `unknown` holds unknown fates, `unconsumed` also samples without a fate. `unproduced` are
    those that have a fate but no recorded production.
    """

    samples: int
    trained: int
    dropped_stale: int
    filtered: int
    aborted: int
    unconsumed: int
    unknown: int
    unproduced: int


@dataclass(frozen=True)
class DeadProcess:
    """A process that fell silent `silent_s` before the last sign of life of any other."""

    node: str
    pid: int
    lanes: tuple[str, ...]
    last_ns: int
    silent_s: float


def overlaps(spans: pl.LazyFrame, topology: Topology) -> tuple[Overlap, ...]:
    """Return, per lane that does one thing at a time, the spans that overlap an earlier one.

    Left out are `step` and `init`, which contain others, `paused`, which says what a lane
    does not do, activities outside the vocabulary, and open spans.
    """
    lanes = [lane.id for lane in topology.lanes if lane.role in SINGLE_ROLES]
    counted = sorted(ACTIVITIES - CONTAINER_ACTIVITIES - {"init", "paused"})
    latest = pl.col("end_ns").cum_max().shift(1).over("lane")
    found = (
        spans.select("start_ns", "end_ns", "activity", "lane")
        .filter(
            pl.col("lane").is_in(lanes)
            & pl.col("activity").is_in(counted)
            & (pl.col("end_ns") > pl.col("start_ns"))
        )
        .sort("start_ns", maintain_order=True)
        .with_columns(latest=latest, before=pl.col("activity").shift(1).over("lane"))
        .filter(pl.col("start_ns") < pl.col("latest"))
        .with_columns(
            overlap=pl.min_horizontal("end_ns", "latest") - pl.col("start_ns"),
            example=pl.format("`{}` after `{}` at {} ns", "activity", "before", "start_ns"),
        )
        .group_by("lane", maintain_order=True)
        .agg(spans=pl.len(), overlap_ns=pl.col("overlap").sum(), example=pl.col("example").first())
        .collect()
    )
    return tuple(Overlap(**row) for row in found.iter_rows(named=True))


def request_counts(requests: pl.LazyFrame) -> RequestCounts:
    """Count the generation attempts by how they ended."""
    ended, finish = pl.col("end_ns").is_not_null(), pl.col("finish")
    finished = ended & finish.is_in(["stop", "length"]).fill_null(value=False)
    aborted = ended & finish.is_in(["abort", "error"]).fill_null(value=False)
    counts = _counted(
        requests,
        submitted=pl.len(),
        finished=finished.sum(),
        aborted=aborted.sum(),
        in_flight=(~ended).sum(),
        unknown=(ended & ~finished & ~aborted).sum(),
    )
    return RequestCounts(**counts)


def sample_counts(samples: pl.LazyFrame) -> SampleCounts:
    """Count the trajectories by fate."""
    fate = pl.col("fate").fill_null("unconsumed")
    consumed = ("trained", "dropped_stale", "filtered", "aborted")
    counts = _counted(
        samples,
        samples=pl.len(),
        unconsumed=(fate == "unconsumed").sum(),
        unknown=(~fate.is_in(sorted(FATES))).sum(),
        unproduced=(pl.col("fate").is_not_null() & pl.col("produced_ns").is_null()).sum(),
        **{name: (fate == name).sum() for name in consumed},
    )
    return SampleCounts(**counts)


def backward_rows(tables: Mapping[str, pl.LazyFrame]) -> dict[str, int]:
    """Return, per table, how many rows end before they begin."""
    conditions = {
        "spans": pl.col("end_ns") < pl.col("start_ns"),
        "requests": (pl.col("end_ns") < pl.col("submit_ns"))
        | (pl.col("first_token_ns") < pl.col("submit_ns"))
        | (pl.col("first_token_ns") > pl.col("end_ns")),
        "samples": pl.col("consumed_ns") < pl.col("produced_ns"),
    }
    found = {name: _counted(tables[name], rows=c.sum())["rows"] for name, c in conditions.items()}
    return {name: rows for name, rows in found.items() if rows}


def unknown_names(tables: Mapping[str, pl.LazyFrame]) -> dict[str, dict[str, int]]:
    """Return `table.column` -> name outside its closed list -> rows.

    Activities that were kept under `other:<name>` are among them.
    """
    found = {}
    for (table, column), known in {("spans", "activity"): ACTIVITIES, **_KNOWN}.items():
        counts = (
            tables[table]
            .filter(~pl.col(column).is_in(sorted(known)))
            .group_by(column)
            .agg(rows=pl.len())
            .sort("rows", column, descending=[True, False])
            .collect()
        )
        if counts.height:
            found[f"{table}.{column}"] = dict(counts.iter_rows())
    return found


def rows_per_lane(tables: Mapping[str, pl.LazyFrame]) -> pl.DataFrame:
    """Return `lane`, `rows` and `last_ns`, its latest recorded time, over all tables."""
    times = {
        "spans": pl.max_horizontal("start_ns", "end_ns"),
        "requests": pl.max_horizontal("submit_ns", "end_ns"),
        "counters": pl.col("ts_ns"),
        "markers": pl.col("ts_ns"),
    }
    counted = [
        tables[name].group_by("lane").agg(rows=pl.len(), last_ns=time.max())
        for name, time in times.items()
    ]
    return (
        pl.concat(counted)
        .filter(pl.col("lane").is_not_null())
        .group_by("lane")
        .agg(pl.col("rows").sum(), pl.col("last_ns").max())
        .sort("lane")
        .collect()
    )


def dead_processes(
    processes: Iterable[Process], exit_code: int | None = None
) -> tuple[DeadProcess, ...]:
    """Return the processes that did not end and fell silent before the others, first ones first.

    `exit_code` is that of the run, None when not known. Times must be on one clock.
    """
    found = tuple(process for process in processes if not process.is_sampler)
    limit = DEAD_AFTER_GOOD_RUN_S if exit_code == 0 else DEAD_AFTER_S
    dead = [
        DeadProcess(p.node, p.pid, p.own_lanes, p.flushed_ns, silent_s)
        for p in found
        if p.ended_ns is None and (silent_s := _silent_s(p, found)) > limit
    ]
    return tuple(sorted(dead, key=lambda process: process.last_ns))


def _silent_s(process: Process, others: Iterable[Process]) -> float:
    """Return for how long those that recorded beside a process went on without it, in seconds.

    One that began later, such as the launcher when it imports profiles, went on with nothing.
    """
    beside = (p.flushed_ns for p in others if p.started_ns <= process.flushed_ns)
    return (max(beside, default=process.flushed_ns) - process.flushed_ns) / 1e9


def _counted(frame: pl.LazyFrame, **counts: pl.Expr) -> dict[str, int]:
    row = frame.select(**counts).collect().row(0, named=True)
    return {name: int(value or 0) for name, value in row.items()}
