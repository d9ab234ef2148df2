"""A report for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rlinsight.analyzers.result import PoolReport, Report, StepRow

_MAX_STEPS = 12
_STEP_COLUMNS = 6


def print_report(report: Report, console: Console) -> None:
    """Print the report, widest facts first."""
    console.print(render(report))


def render(report: Report) -> RenderableType:
    """Return the report as one rich renderable."""
    parts: list[RenderableType] = [_header(report), _pools(report)]
    parts += [_ledger(name, pool) for name, pool in report.pools.items()]
    parts += [_activities(report), _steps(report), _trust(report)]
    return Group(*parts)


def seconds(value: float | None) -> str:
    """Return a time with a unit and three significant digits; `-` where unknown."""
    if value is None:
        return "-"
    if value == 0:
        return "0 s"
    for unit, scale in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        limit = scale * (10 if unit in ("h", "min") else 1)
        if abs(value) >= limit:
            return f"{_three(value / scale)} {unit}"
    return f"{value * 1e9:.0f} ns"


def percent(ratio: float | None) -> str:
    """Return a ratio in percent; `-` where unknown."""
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def _three(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{min(digits, 3)}f}"


def _header(report: Report) -> Text:
    run, window = report.run, report.window
    rate, samples = report.throughput.tokens_per_s_per_device, report.throughput.samples_per_s
    lines = [
        f"run         {run.run_id or '(unnamed)'}" + ("  [smoke run]" if run.smoke else ""),
        f"mode        {run.mode or 'unknown'}, engine {run.engine or 'unknown'}",
        f"devices     {run.trainer_devices} trainer + {run.rollout_devices} rollout"
        f" ({', '.join(run.device_kinds) or 'kind unknown'}), nodes {run.nodes};"
        f" replicas: {run.standalone_replicas} standalone, {run.hybrid_replicas} hybrid",
        f"recorded    {seconds(run.duration_s)}; figures over {seconds(window.duration_s)}"
        f" ({window.cut})",
        f"versions    {_span(window.versions)}",
        f"throughput  {_rate(rate.value, 'tokens/s/device')}, {_rate(samples.value, 'samples/s')}"
        f" (trained; prompt + response tokens; all {_devices(report)} devices)",
    ]
    if run.smoke:
        lines.append("note        a smoke run checks the plumbing; its learning means nothing")
    return Text("\n".join(lines) + "\n")


def _devices(report: Report) -> int:
    return report.run.trainer_devices + report.run.rollout_devices


def _span(versions: tuple[int, int] | None) -> str:
    return "unknown" if versions is None else f"{versions[0]} to {versions[1]}"


def _rate(value: float | None, unit: str) -> str:
    return f"- {unit}" if value is None else f"{_three(value)} {unit}"


def _pools(report: Report) -> Table:
    table = Table(
        "pool", "device-seconds", "useful", "overhead", "idle", title="Where the time went"
    )
    table.add_column("verl's own figure")
    for name, pool in report.pools.items():
        table.add_row(
            name,
            f"{pool.device_seconds:.1f} s on {pool.devices}",
            *(
                percent(_share(part, pool.device_seconds))
                for part in (pool.useful_seconds, pool.overhead_seconds)
            ),
            percent(pool.idle_ratio),
            "\n".join(
                f"{figure.key} = {percent(figure.value)}" for figure in pool.framework_figures
            )
            or "-",
        )
    return table


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _ledger(name: str, pool: PoolReport) -> Table:
    table = Table("state", "device-seconds", "share", title=f"Ledger: {name} pool")
    for state, value in pool.ledger.items():
        table.add_row(state, f"{value:.3f} s", percent(_share(value, pool.device_seconds)))
    return table


def _activities(report: Report) -> Table:
    table = Table("lanes", "activity", "spans", "lane time", "mean", title="Time per activity")
    for row in report.activities:
        spans = f"{row.spans}" + (f" ({row.open_spans} open)" if row.open_spans else "")
        table.add_row(
            f"{row.role} × {row.lanes}",
            escape(row.activity),
            spans,
            seconds(row.lane_seconds),
            seconds(row.mean_s),
        )
    return table


def _steps(report: Report) -> RenderableType:
    if not report.steps:
        return Text("no training step has ended\n")
    names = _largest(report.steps)
    table = Table("step", "version", "duration", *names, "tokens", title="Training steps")
    shown = report.steps[-_MAX_STEPS:]
    for row in shown:
        table.add_row(
            _text(row.step),
            _text(row.param_version),
            seconds(row.duration_s),
            *(seconds(row.activities.get(name)) for name in names),
            _text(row.tokens),
        )
    if len(shown) < len(report.steps):
        table.caption = f"the last {len(shown)} of {len(report.steps)} steps"
    return table


def _largest(steps: Iterable[StepRow]) -> list[str]:
    totals: dict[str, float] = {}
    for row in steps:
        for name, value in row.activities.items():
            totals[name] = totals.get(name, 0.0) + value
    return sorted(totals, key=lambda name: -totals[name])[:_STEP_COLUMNS]


def _text(value: int | None) -> str:
    return "-" if value is None else str(value)


def _trust(report: Report) -> Text:
    trust = report.trust
    lines = [
        f"trust       {trust.hooks_installed} hooks fired or stood ready,"
        f" {len(trust.hooks_skipped)} skipped; unattributed device time"
        f" {percent(trust.unattributed_ratio)}; time inside hooks"
        f" {seconds(trust.hook_seconds)} ({_share_text(trust.hook_share)} of the wall time)"
    ]
    lines += [
        f"            skipped hook {name}: {why}" for name, why in trust.hooks_skipped.items()
    ]
    lines += [f"            hook {name} failed {n} times" for name, n in trust.hook_errors.items()]
    lines += [f"            dropped rows, {table}: {n}" for table, n in trust.dropped_rows.items()]
    lines += [f"            not read, {path}: {why}" for path, why in trust.skipped_files.items()]
    lines += [f"died        {lane}: {why}" for lane, why in trust.dead_lanes.items()]
    lines += [f"            {remark}" for remark in trust.remarks]
    if trust.open_intervals:
        lines.append(f"            {trust.open_intervals} intervals were begun and never ended")
    return Text("\n".join(lines))


def _share_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio * 100:.3f} %"
