"""Gauges below the lanes, on the same time axis, and those that fill a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlinsight.webapp.timeline.gauges import IN_FLIGHT, TOTAL, envelope, mean_value
from rlinsight.webapp.timeline.index import Array, Index

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.window import Frame

#: Lines of a panel that are drawn one by one; of more, their total or mean is drawn.
_MOST_LINES: Final = 4


@dataclass(frozen=True)
class Panel:
    """One panel: the gauges it shows, the first of `names` that was recorded unless `all`.

    `limit` is the gauge that the values are held against.
    """

    id: str
    title: str
    names: tuple[str, ...]
    unit: str = ""
    limit: str | None = None
    all: bool = False


PANELS: Final = (
    Panel(
        "queue",
        "Queue",
        ("queue_depth", "replay_pending", "replay_running", "replay_finished"),
        "samples",
        all=True,
    ),
    Panel("staleness", "Staleness", ("staleness_samples",), "samples", "max_required_samples"),
    Panel("running", "Running requests", ("running_requests", IN_FLIGHT), "requests"),
    Panel("kv", "KV cache", ("kv_cache_usage",), "ratio"),
    Panel("utilization", "Utilization", ("device_utilization", "host_cpu_utilization"), "ratio"),
    Panel(
        "memory",
        "Memory",
        ("device_memory_used_bytes", "device_memory_allocated_bytes", "host_memory_used_bytes"),
        "bytes",
        "device_memory_total_bytes",
    ),
)

_AREAS: Final = {
    "replica": (IN_FLIGHT,),
    "queue": ("queue_depth", "replay_trajectories"),
}


def panel_gauges(index: Index, panel: Panel) -> list[int]:
    """Return the gauges that a panel shows: those of single lanes, or where these are many,
    the one that sums them up.
    """
    found: list[int] = []
    for name in panel.names:
        mine = [i for i, (gauge, _) in enumerate(index.names.gauges) if gauge == name]
        single = [i for i in mine if index.names.gauges[i][1] != TOTAL]
        total = [i for i in mine if i not in single]
        found += total if len(single) > _MOST_LINES else single
        if found and not panel.all:
            break
    return found


def panels(index: Index, frame: Frame) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return the panels that have anything to show, and lowest, highest and mean of their lines."""
    found: list[dict[str, Any]] = []
    rows: list[Array] = []
    for panel in PANELS:
        gauges = panel_gauges(index, panel)
        if not gauges:
            continue
        limits = [i for i, (name, _) in enumerate(index.names.gauges) if name == panel.limit][:1]
        lines = [(gauge, False) for gauge in gauges] + [(gauge, True) for gauge in limits]
        shown = []
        for gauge, limit in lines:
            factor, label = _scale(index, gauge, panel)
            envelope_of = envelope(index, gauge, frame.start, 1 << frame.level, frame.count)
            rows += [values * factor for values in envelope_of]
            shown.append({"label": label, "limit": limit})
        about = {"id": panel.id, "title": panel.title, "unit": panel.unit}
        found.append({**about, "gauge": index.names.gauges[gauges[0]][0], "lines": shown})
    empty = np.empty((0, frame.count), np.float32)
    return found, {"panel_values": np.stack(rows).astype(np.float32) if rows else empty}


def _scale(index: Index, gauge: int, panel: Panel) -> tuple[float, str]:
    """Return the factor and the label of a line; a ratio is averaged over lanes, not summed."""
    name, lane = index.names.gauges[gauge]
    if lane != TOTAL:
        short = name.removeprefix("replay_").removeprefix("queue_")
        return 1.0, f"{short}, {lane}" if panel.all else lane
    lanes = sum(1 for other, _ in index.names.gauges if other == name) - 1
    if panel.unit == "ratio":
        return 1 / lanes, f"mean of {lanes}"
    return 1.0, f"sum of {lanes}"


def areas(
    index: Index, lanes: Sequence[int], frame: Frame
) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return, for the lanes that a gauge fills, that gauge's mean over time."""
    found: list[dict[str, Any]] = []
    rows: list[Array] = []
    places = {gauge: i for i, gauge in enumerate(index.names.gauges)}
    for number in lanes:
        lane = index.names.lanes[number]
        for name in _AREAS.get(lane.role, ()) if lane.area else ():
            gauge = places.get((name, lane.id))
            if gauge is not None:
                mean = mean_value(index, gauge, frame.start, 1 << frame.level, frame.count)
                found.append({"lane": number, "gauge": name})
                rows.append(mean)
                break
    empty = np.empty((0, frame.count), np.float32)
    return found, {"area_mean": np.stack(rows).astype(np.float32) if rows else empty}
