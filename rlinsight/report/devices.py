"""What the devices did: utilization and power beside the ledger, memory, kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinsight.analyzers.devices.kernels import WITHIN
from rlinsight.report.section import Section
from rlinsight.report.units import count, number, percent, seconds

if TYPE_CHECKING:
    from rlinsight.analyzers.devices.kernels import KernelStage
    from rlinsight.analyzers.devices.report import DeviceReport
    from rlinsight.analyzers.result import Report

Row = tuple[str, ...]

_MEANING = {
    "host_bound": "host-bound: busy by span, idle by device",
    "launch_bound": "launch-bound: kernels too small to fill it",
    "spinning": "spinning: a kernel waits, as in a collective",
}
_SHOWN = 16
_GIB = 2**30


def device_states(report: Report) -> Section:
    """Return what each device did in each state, and which device is in trouble."""
    found = report.devices
    columns = (
        "device", "state", "sampled", "utilization", "SM", "power", "of its range", "finding",
    )  # fmt: skip
    rows = [] if found is None else [*_states(found), *_troubles(found), *_sharing(found)]
    note = ""
    if found is not None and found.busy_share is not None:
        outside = [f"{d.device} {percent(d.outside_share)}" for d in found.devices]
        note = (
            f"while records call a device busy, the driver does for {percent(found.busy_share)} "
            f"of the time; of what the driver saw, in no record: {', '.join(outside)}"
        )
    return Section("Devices: what they did", columns, tuple(rows), note)


def _states(found: DeviceReport) -> list[Row]:
    shown = [entry for entry in found.states if not entry.state.startswith("bubble.")]
    return [
        (
            entry.device,
            entry.state,
            seconds(entry.sampled_s),
            percent(entry.utilization),
            percent(entry.sm_utilization),
            number(entry.power_w, "W"),
            percent(entry.power_share),
            _MEANING[entry.finding] if entry.finding else "-",
        )
        for entry in shown
    ]


def _troubles(found: DeviceReport) -> list[Row]:
    rows: list[Row] = []
    for entry in found.troubles:
        what = [f"slowed down for {seconds(entry.throttled_s)}"] if entry.throttled_s else []
        what += [", ".join(entry.reasons)] if entry.reasons else []
        what += [f"clock {percent(entry.clock_ratio)} of its peers'"] if entry.slow else []
        what += list(entry.errors)
        rows.append((entry.device, "trouble", "-", "-", "-", "-", "-", "; ".join(what)))
    return rows


def _sharing(found: DeviceReport) -> list[Row]:
    return [
        (
            entry.device,
            "engine awake",
            "-",
            "-",
            "-",
            "-",
            "-",
            f"by its memory steps the engine holds it {percent(entry.engine_share)} of the time, "
            f"the trainer {percent(entry.trainer_share)} ({entry.switches} changes)",
        )
        for entry in found.sharing
    ]


def device_memory(report: Report) -> Section:
    """Return memory peaks per state, and what the allocators of the ranks held."""
    columns = ("where", "in", "peak", "of", "headroom", "advice")
    found = report.devices
    if found is None:
        return Section("Device memory", columns, ())
    rows: list[Row] = [
        (
            entry.device,
            entry.state,
            _gib(entry.peak_bytes),
            _gib(entry.total_bytes),
            percent(entry.headroom),
            "-",
        )
        for entry in found.memory
        if not entry.state.startswith("bubble.")
    ]
    spread = found.ranks
    for rank in spread.ranks[:_SHOWN] if spread else ():
        factor = rank.budget_factor
        advice = "-" if factor is None else f"token budget x {number(factor)} would fit"
        rows.append((rank.lane, "allocator", _gib(rank.peak_bytes), "-", "-", advice))
    uneven = spread.imbalance if spread else None
    note = "" if uneven is None else f"ranks: largest peak / mean - 1 = {percent(uneven)}"
    return Section("Device memory", columns, tuple(rows), note)


def kernel_stages(report: Report) -> Section:
    """Return the profiled stages: busy, communication, largest kernels, agreement."""
    columns = ("stage", "what", "found")
    found = report.devices
    rows = [row for stage in (found.kernels if found else ()) for row in _stage(stage)]
    return Section("Kernel windows", columns, tuple(rows))


def _stage(stage: KernelStage) -> list[Row]:
    name = f"{stage.role}, step {count(stage.step)}, {stage.lane}"
    busy = "kernels" if stage.source == "device" else "operators of the host"
    return [
        (
            name,
            "busy",
            f"{busy} for {percent(stage.busy)} of {seconds(stage.duration_s)}, "
            f"{number(stage.launches_per_s)} launches/s, "
            f"longest gap {seconds(stage.longest_gap_s)}",
        ),
        (
            name,
            "communication",
            f"{percent(stage.communication)}, not overlapped "
            f"{percent(stage.exposed_communication)}",
        ),
        *((name, "top", f"{percent(k.share)} in {k.count} x {k.name}") for k in stage.top),
        (name, "agreement", _agreement(stage)),
    ]


def _agreement(stage: KernelStage) -> str:
    if stage.driver_utilization is None:
        return "the driver was not sampled meanwhile"
    bound = f"within {percent(WITHIN)} of the stage"
    verdict = {
        True: f"agree {bound}", False: f"do NOT agree {bound}", None: "too short to compare",
    }[stage.agrees]  # fmt: skip
    return (
        f"span {seconds(stage.span_s)}, stage in it {seconds(stage.duration_s)}, kernels "
        f"{percent(stage.busy)}, driver {percent(stage.driver_utilization)}: {verdict}"
    )


def _gib(value: int | None) -> str:
    return "-" if value is None else f"{number(value / _GIB)} GiB"
