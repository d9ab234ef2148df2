"""Figures over the course of a run: throughput and waits beside reward and accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from rlinsight.analyzers.quality.guard import metric_curve, reward_curve
from rlinsight.analyzers.quality.step_axis import Axis, on_step_axis
from rlinsight.analyzers.result import Report
from rlinsight.analyzers.tables import training_steps
from rlinsight.trace.reader import Trace

THROUGHPUT: Final = "tokens/s/device"
IDLE: Final = "trainer idle"
REWARD: Final = "mean reward"
#: Points kept of a curve, at most; longer ones are averaged in groups.
MOST: Final = 400


@dataclass(frozen=True)
class Curve:
    """A figure of one run over parameter versions or training steps; None is unknown."""

    figure: str
    axis: Axis
    x: tuple[float, ...]
    y: tuple[float | None, ...]


def curves(trace: Trace, report: Report) -> tuple[Curve, ...]:
    """Return the curves of a run: of the steady windows, and of all of its learning."""
    return (*_windows(report), *_learning(trace))


def _windows(report: Report) -> Iterator[Curve]:
    rows = report.versions
    devices = sum(pool.devices for pool in report.pools.values())
    at = [float(row.version) for row in rows]
    if rows and devices:
        rates = [
            row.trained_tokens / row.duration_s / devices
            if row.trained_tokens is not None and row.duration_s
            else None
            for row in rows
        ]
        yield _curve(THROUGHPUT, "parameter version", at, rates)
    if rows and "trainer" in report.pools:
        idle = [row.idle_ratio.get("trainer") for row in rows]
        yield _curve(IDLE, "parameter version", at, idle)


def _learning(trace: Trace) -> Iterator[Curve]:
    metrics = trace.metrics.collect().with_columns(pl.col("key").cast(pl.String))
    samples = trace.samples.collect()
    steps = training_steps(trace.spans.filter(pl.col("activity") == "step").collect())
    metrics, axis = on_step_axis(metrics, steps, trace.mode, trace.manifest.config)
    rewards, source = reward_curve(samples, metrics)
    keys = metrics.filter(pl.col("key").str.starts_with("val-core/"))["key"].unique().sort()
    rows = {key: (axis, metric_curve(metrics, key)) for key in keys}
    rows = {REWARD: ("training step" if source == "samples" else axis, rewards)} | rows
    for name, (over, curve) in rows.items():
        known = curve.drop_nulls()
        if not known.is_empty():
            yield _curve(name, over, known["step"].to_list(), known["value"].to_list())


def _curve(figure: str, axis: Axis, x: Sequence[float], y: Sequence[float | None]) -> Curve:
    size = -(-len(x) // MOST)
    if size < 2:
        return Curve(figure, axis, tuple(map(float, x)), tuple(y))
    groups = range(0, len(x), size)
    return Curve(
        figure,
        axis,
        tuple(sum(x[i : i + size]) / len(x[i : i + size]) for i in groups),
        tuple(_mean(y[i : i + size]) for i in groups),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
