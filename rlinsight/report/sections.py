"""A report as titled tables; the terminal, Markdown and HTML renderers draw the same ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlinsight.report.alarms import alarms, last_events
from rlinsight.report.balance import balance
from rlinsight.report.devices import device_memory, device_states, kernel_stages
from rlinsight.report.figures_of_merit import key_figures
from rlinsight.report.phases import metric_phases, sync_stages
from rlinsight.report.section import Section
from rlinsight.report.trust import trust
from rlinsight.report.units import count, counted, device_seconds, number, percent, seconds
from rlinsight.report.verdict import CAUSES

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report, StepRow

_MAX_STEPS = 12
_STEP_COLUMNS = 5
_MAX_BUBBLES = 10


def sections(report: Report, pools: Iterable[str] | None = None) -> list[Section]:
    """Return all sections that have something to say, `pools` restricting those of pools."""
    shown = list(pools or report.pools)
    found = [
        alarms(report),
        last_events(report),
        metric_phases(report),
        _pools(report, shown),
        _ledger(report, shown),
        _causes(report, shown),
        _bubbles(report, shown),
        key_figures(report),
        balance(report),
        device_states(report),
        device_memory(report),
        kernel_stages(report),
        sync_stages(report),
        _versions(report, shown),
        _steps(report),
        _activities(report),
        _defects(report),
        trust(report),
    ]
    return [section for section in found if section.rows]


def _pools(report: Report, shown: list[str]) -> Section:
    rows = [
        (
            name,
            f"{device_seconds(pool.device_seconds)} device-s on {counted(pool.devices, 'device')}",
            percent(_share(pool.useful_seconds, pool.device_seconds)),
            percent(_share(pool.overhead_seconds, pool.device_seconds)),
            percent(pool.idle_ratio),
            percent(pool.slot_utilization),
            "; ".join(f"{f.key} = {percent(f.value)}" for f in pool.framework_figures) or "-",
        )
        for name, pool in report.pools.items()
        if name in shown
    ]
    columns = ("pool", "device time", "useful", "overhead", "idle", "slots used", "verl's figures")
    return Section("Where the time went", columns, tuple(rows))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _ledger(report: Report, shown: list[str]) -> Section:
    pools = {name: pool for name, pool in report.pools.items() if name in shown}
    totals: dict[str, float] = {}
    for pool in pools.values():
        for state, value in pool.ledger.items():
            totals[state] = totals.get(state, 0.0) + value
    rows = [
        (
            state,
            *(
                cell
                for pool in pools.values()
                for cell in _spent(pool.ledger.get(state), pool.device_seconds)
            ),
        )
        for state in sorted(totals, key=lambda state: -totals[state])
    ]
    columns = ("state", *(text for name in pools for text in (f"{name}, device-s", "share")))
    return Section("Device-time ledger", columns, tuple(rows))


def _spent(value: float | None, whole: float) -> tuple[str, str]:
    return ("-", "-") if value is None else (device_seconds(value), percent(_share(value, whole)))


def _causes(report: Report, shown: list[str]) -> Section:
    rows = [
        (
            total.owner,
            total.cause,
            percent(total.share),
            device_seconds(total.device_seconds),
            number(total.mini_batches),
            count(total.bubbles),
            seconds(total.longest_s),
            CAUSES[total.cause],
        )
        for total in report.bubbles.totals
        if total.owner in shown
    ]
    columns = (
        "owner", "cause", "share of pool", "device-s", "mini-batches", "bubbles", "longest",
        "meaning",
    )  # fmt: skip
    unit = report.bubbles.mini_batch_s
    note = f"one PPO mini-batch trains for {seconds(unit)}" if unit else ""
    return Section("Bubbles by owner and cause", columns, tuple(rows), note, spare=("meaning",))


def _bubbles(report: Report, shown: list[str]) -> Section:
    largest = [b for b in report.bubbles.largest if b.owner in shown]
    largest.sort(key=lambda bubble: -bubble.device_seconds)
    start = report.run.started_ns or 0
    rows = [
        (
            f"{(bubble.start_ns - start) / 1e9:.3f} s",
            seconds((bubble.end_ns - bubble.start_ns) / 1e9),
            device_seconds(bubble.device_seconds),
            percent(bubble.share),
            bubble.owner,
            bubble.cause,
            ", ".join(
                f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in bubble.evidence.items()
            )
            or "-",
        )
        for bubble in largest[:_MAX_BUBBLES]
    ]
    columns = (
        "at", "length", "device-s", "share of pool", "owner", "cause", "gauges when it began",
    )  # fmt: skip
    note = f"the {len(rows)} largest of {len(largest)}" if len(rows) < len(largest) else ""
    return Section("Largest bubbles", columns, tuple(rows), note)


def _versions(report: Report, shown: list[str]) -> Section:
    pools = [name for name in report.pools if name in shown]
    rows = [
        (
            str(row.version),
            seconds(row.duration_s),
            *(percent(row.idle_ratio.get(name)) for name in pools),
            count(row.trained_tokens),
        )
        for row in report.versions[-_MAX_STEPS:]
    ]
    columns = ("version", "window", *(f"{name} idle" for name in pools), "trained tokens")
    return Section("Version windows", columns, tuple(rows), _last(rows, report.versions))


def _steps(report: Report) -> Section:
    names = _largest(report.steps)
    rows = [
        (
            count(row.step),
            count(row.param_version),
            seconds(row.duration_s),
            *(seconds(row.activities.get(name)) for name in names),
            count(row.tokens),
        )
        for row in report.steps[-_MAX_STEPS:]
    ]
    columns = ("step", "version", "duration", *names, "tokens")
    return Section("Training steps", columns, tuple(rows), _last(rows, report.steps))


def _last(rows: list[tuple[str, ...]], of: tuple[object, ...]) -> str:
    return f"the last {len(rows)} of {len(of)}" if len(rows) < len(of) else ""


def _largest(steps: Iterable[StepRow]) -> list[str]:
    totals: dict[str, float] = {}
    for row in steps:
        for name, value in row.activities.items():
            totals[name] = totals.get(name, 0.0) + value
    by_size = sorted(totals, key=lambda name: (name.startswith("other:"), -totals[name]))
    return by_size[:_STEP_COLUMNS]


def _activities(report: Report) -> Section:
    rows = [
        (
            f"{row.role} x {row.lanes}",
            row.activity,
            f"{row.spans}" + (f" ({row.open_spans} open)" if row.open_spans else ""),
            seconds(row.lane_seconds),
            seconds(row.mean_s),
        )
        for row in report.activities
    ]
    columns = ("lanes", "activity", "spans", "lane time", "mean")
    return Section("Time per activity, whole run", columns, tuple(rows))


def _defects(report: Report) -> Section:
    rows: list[tuple[str, ...]] = [
        (d.name, d.where, d.told, d.reference or "-") for d in report.defects
    ]
    if report.idle_figures is not None and report.idle_figures.told:
        rows.insert(0, ("idle_figures", "both idle ratios", report.idle_figures.told, "verl#6693"))
    columns = ("defect", "where", "shown by", "reference")
    return Section("Where the framework's own figures mislead", columns, tuple(rows))
