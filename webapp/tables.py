"""Tables as data, for grids and downloads, with units in the column names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from rlinsight.analyzers.compare.result import Comparison
from rlinsight.analyzers.verdict import ceiling
from rlinsight.webapp.store import Run
from rlinsight.webapp.summary import Summary


def bubble_totals(run: Run) -> pl.DataFrame:
    """All bubbles by owner and cause; `ceiling` is the gain in throughput, at most."""
    report = run.report
    return _frame(
        {
            "owner": total.owner,
            "cause": total.cause,
            "share_of_pool": total.share,
            "device_seconds": total.device_seconds,
            "mini_batches": total.mini_batches,
            "bubbles": total.bubbles,
            "longest_s": total.longest_s,
            "ceiling": ceiling(total, report.pools),
        }
        for total in report.bubbles.totals
    )


def bubbles(run: Run) -> pl.DataFrame:
    """The largest single bubbles, each with its place on the timeline."""
    return _frame(
        {
            "from_s": run.seconds(bubble.start_ns),
            "duration_s": (bubble.end_ns - bubble.start_ns) / 1e9,
            "owner": bubble.owner,
            "cause": bubble.cause,
            "device_seconds": bubble.device_seconds,
            "share_of_pool": bubble.share,
            "mini_batches": bubble.mini_batches,
            "lanes": ", ".join(bubble.lanes),
            "evidence": ", ".join(f"{key} {_plain(v)}" for key, v in bubble.evidence.items()),
        }
        for bubble in sorted(run.report.bubbles.largest, key=lambda b: -b.device_seconds)
    )


def versions(run: Run) -> pl.DataFrame:
    """The version windows."""
    report = run.report
    return _frame(
        {
            "version": row.version,
            "from_s": run.seconds(row.start_ns),
            "duration_s": row.duration_s,
            **{f"{pool}_idle_ratio": row.idle_ratio.get(pool) for pool in report.pools},
            "trained_tokens": row.trained_tokens,
            "trained_samples": row.trained_samples,
        }
        for row in report.versions
    )


def coverage(run: Run) -> pl.DataFrame:
    """Coverage per version window."""
    return _frame(
        {
            "version": row.version,
            "trigger_steps": row.trigger_steps,
            "wait_s": row.wait_s,
            "fresh_only_wait_s": row.fresh_only_wait_s,
            "coverage": row.coverage,
            "unknown": row.unknown,
        }
        for row in run.report.coverage.windows
    )


def lengths_by_step(run: Run) -> pl.DataFrame:
    """Response lengths of each training step, in tokens."""
    return _frame({"step": row.key, **_length(row)} for row in run.report.lengths.steps)


def lengths_by_replica(run: Run) -> pl.DataFrame:
    """Response lengths, speed and use of each replica."""
    report = run.report
    speeds = {speed.lane: speed for speed in report.balance.replicas}
    slots = {lane.lane: lane for lane in report.slots.lanes}
    tail = report.lengths.tail
    tails = {row.lane: row for row in tail.replicas} if tail else {}
    lengths = {str(row.key): row for row in report.lengths.replicas}
    return _frame(
        {
            "replica": lane,
            "engine_kind": slots[lane].engine_kind if lane in slots else None,
            **(_length(lengths[lane]) if lane in lengths else {}),
            "ms_per_token": speeds[lane].ms_per_token if lane in speeds else None,
            "slowdown": speeds[lane].slowdown if lane in speeds else None,
            "slot_utilization": slots[lane].utilization if lane in slots else None,
            "mean_running": slots[lane].mean_running if lane in slots else None,
            "tail_cost_device_seconds": tails[lane].cost_device_seconds if lane in tails else None,
        }
        for lane in sorted({*lengths, *slots, *speeds})
    )


def ranks(run: Run) -> pl.DataFrame:
    """Work of each data-parallel rank."""
    balance = run.report.balance.ranks
    return _frame(
        {
            "rank": rank.lane,
            "calls": rank.calls,
            "tokens": rank.tokens,
            "seconds": rank.seconds,
            "slowdown": rank.slowdown,
        }
        for rank in (balance.ranks if balance else ())
    )


def runs(summaries: Iterable[Summary]) -> pl.DataFrame:
    """Every run of the folder in one row."""
    return _frame(vars(summary) for summary in summaries)


def compared(found: Comparison) -> pl.DataFrame:
    """Every metric of every run of a comparison, beside the reference."""
    return _frame(
        {
            "metric": row.name,
            "unit": row.unit,
            "run": run.name,
            "value": cell.value if cell else None,
            "low": cell.own_low if cell else None,
            "high": cell.own_high if cell else None,
            "change": cell.change if cell else None,
            "change_low": cell.low if cell else None,
            "change_high": cell.high if cell else None,
            "p_adjusted": cell.p_adjusted if cell else None,
            "direction": cell.direction if cell else None,
        }
        for row in found.metrics
        for run, cell in zip(found.runs, row.cells, strict=True)
    )


def response(found: Comparison) -> pl.DataFrame:
    """The response curves of a comparison: the gain of each pair of settings."""
    return _frame(
        {"metric": one.metric, "variable": found.series.variable.key, **vars(gain)}
        for one in (found.series.responses if found.series else ())
        for gain in one.gains
        if found.series is not None
    )


def configuration(found: Comparison) -> pl.DataFrame:
    """The keys that are set differently, with the value of each run."""
    names = [run.name for run in found.runs]
    return _frame(
        {"key": key, **dict(zip(names, values, strict=True))}
        for key, values in found.differing.items()
    )


@dataclass(frozen=True)
class Table:
    """A table about one run, about the folder, or about a comparison of some runs."""

    frame: Callable[[Any], pl.DataFrame]
    of: Literal["run", "folder", "comparison"] = "run"


TABLES: Final[Mapping[str, Table]] = {
    "bubble_totals": Table(bubble_totals),
    "bubbles": Table(bubbles),
    "versions": Table(versions),
    "coverage": Table(coverage),
    "lengths_by_step": Table(lengths_by_step),
    "lengths_by_replica": Table(lengths_by_replica),
    "ranks": Table(ranks),
    "runs": Table(runs, of="folder"),
    "comparison": Table(compared, of="comparison"),
    "response": Table(response, of="comparison"),
    "configuration": Table(configuration, of="comparison"),
}


def _length(row: Any) -> dict[str, Any]:
    names = ("samples", "mean", "cv", "p50", "p95", "p99", "max", "cap_share")
    return {name: getattr(row, name) for name in names}


def _frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    frame = pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)
    # A column without any value has no type of its own; text is what both formats can hold.
    return frame.with_columns(pl.col(pl.Null).cast(pl.String))


def _plain(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value
