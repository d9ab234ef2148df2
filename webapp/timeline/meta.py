"""What a browser must know of a timeline before it asks for a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlinsight.webapp.timeline import overview, panels
from rlinsight.webapp.timeline.index import NULL, Index
from rlinsight.webapp.timeline.lanes import FLEET_DEVICES, GROUPS, state_document
from rlinsight.webapp.timeline.window import View, frame_of

if TYPE_CHECKING:
    from rlinsight.webapp.store import Run

#: Buckets of the minimap.
_MINIMAP: int = 600


def meta(index: Index, run: Run) -> dict[str, Any]:
    """Return names, states, groups and the minimap; `stamp` changes when the trace does."""
    names = index.names
    lanes = names.lanes
    marked = set(np.unique(index.arrays.marker_lane).tolist())
    used = {lane.group for lane in lanes}
    return {
        "run": run.id,
        "name": run.name,
        "mode": run.trace.mode,
        "live": run.live,
        "stamp": f"{run.stamp}.{names.extent_ns}",
        "origin_ns": str(names.origin_ns),
        "duration_s": names.extent_ns / 1e9,
        "items": names.items,
        "devices": names.devices,
        "fleet": names.devices > FLEET_DEVICES,
        "groups": [{"id": id_, "title": title} for id_, title in GROUPS if id_ in used],
        "lanes": [lane.to_dict() | {"marks": i in marked} for i, lane in enumerate(lanes)],
        "states": [{"name": name, **state_document(name)} for name in names.states],
        "marker_kinds": list(names.marker_kinds),
        "marker_reasons": list(names.marker_reasons),
        "steps": _range(index.arrays.step_number),
        "versions": _range(index.arrays.version_number),
        "panels": [
            {"id": panel.id, "title": panel.title, "unit": panel.unit}
            for panel in panels.PANELS
            if panels.panel_gauges(index, panel)
        ],
        "minimap": minimap(index),
        "remark": names.remark,
    }


def _range(numbers: Any) -> list[int] | None:
    known = numbers[numbers != NULL]
    return [int(known.min()), int(known.max())] if len(known) else None


def minimap(index: Index) -> dict[str, Any]:
    """Return one row per pool of devices: the share of each state over the whole run.

    A trace without devices has the trainer's row.
    """
    view = View(0, index.names.extent_ns, _MINIMAP)
    pools = sorted({lane.pool for lane in index.names.lanes if lane.pool}, reverse=True)
    groups = [f"devices/{pool}" for pool in pools] or ["trainer"]
    frame = frame_of(view, index.names.extent_ns)
    rows, arrays = overview.groups(index, groups, frame)
    shares = iter(np.rint(arrays["group_share"] * 255).astype(int).tolist())
    return {
        **frame.to_dict(),
        "rows": [{**row, "shares": [next(shares) for _ in row["states"]]} for row in rows],
    }
