"""What step metrics alone tell, for a trace without devices; and the stages of weight syncs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.report.section import Section
from rlinsight.report.units import count, number, percent, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.framework.metrics_only import MetricsOnly
    from rlinsight.analyzers.result import Report

_BOUND = {
    "rollout": "the wait for samples says: rollout-bound",
    "trainer": "the wait for samples says: trainer-bound",
    "mixed": "the wait for samples says: both sides matter",
    "pipeline": "generation and training take turns",
}


def metric_phases(report: Report) -> Section:
    """Return the mean step in its phases; empty where devices were recorded."""
    found = report.metrics_only
    if found is None:
        return Section("Mean step, from its metrics", (), ())
    rows = [*_phases(found), *_beside(found)]
    bound = found.breakdown.bound if found.breakdown else None
    note = "; ".join([found.source, *([_BOUND[bound]] if bound else [])])
    return Section("Mean step, from its metrics", ("what", "time", "share"), tuple(rows), note)


def _phases(found: MetricsOnly) -> list[tuple[str, str, str]]:
    step = found.breakdown
    if step is None:
        return []
    rows = [
        (name, seconds(value), percent(step.shares.get(name)))
        for name, value in sorted(step.phases.items(), key=lambda item: -item[1])
    ]
    rest = step.residual_s / step.step_s if step.step_s else None
    rows.append(("in no timer", seconds(step.residual_s), percent(rest)))
    rows.append((f"step, mean of {found.rows}", seconds(step.step_s), percent(1.0)))
    return rows


def _beside(found: MetricsOnly) -> list[tuple[str, str, str]]:
    rows = [
        ("idle for the longest trajectory", "-", percent(found.long_tail_idle)),
        ("DP imbalance, balanced", "-", percent(found.dp_imbalance)),
        ("DP imbalance, as it came", "-", percent(found.dp_imbalance_before)),
        ("model FLOPs utilization", "-", percent(found.mfu)),
    ]
    if found.outside is not None:
        ratio = percent(found.outside.outside_ratio)
        rows.append(("wall time in no step", seconds(found.outside.outside_s), ratio))
    rows += [("finding", finding, "-") for finding in found.findings]
    return [row for row in rows if row[1:] != ("-", "-")]


def sync_stages(report: Report) -> Section:
    """Return the mean time of each stage of a weight sync, per backend."""
    kinds = report.sync.by_backend if report.sync else {}
    rows = tuple(
        (
            backend,
            stage,
            seconds(mean),
            seconds(kind.p95_s.get(stage)),
            percent(mean / kind.mean_s["total"] if kind.mean_s.get("total") else None),
            count(kind.syncs),
        )
        for backend, kind in kinds.items()
        for stage, mean in kind.mean_s.items()
    )
    grown = [
        f"{backend}: {number(kind.trend.growth)} x as long in the last third as in the first"
        for backend, kind in kinds.items()
        if kind.trend is not None and kind.trend.growing
    ]
    columns = ("backend", "stage", "mean", "p95", "share of sync", "syncs")
    return Section("Weight sync", columns, rows, "; ".join(grown))
