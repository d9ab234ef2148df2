"""Why devices idled: the gauges that decide, and what every lane did meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlinsight.analyzers.device_time.states import STATE_OF_PAUSE, UNATTRIBUTED, cause_of
from rlinsight.report.verdict import CAUSES
from rlinsight.webapp.timeline.cells import cells
from rlinsight.webapp.timeline.gauges import IN_FLIGHT, TOTAL, mean_value
from rlinsight.webapp.timeline.lanes import TimelineLane, state_document
from rlinsight.webapp.timeline.window import lanes_series

if TYPE_CHECKING:
    from rlinsight.webapp.timeline.index import Index

#: Gauges that decide about pauses and waits.
_DECIDING: Final = (
    "queue_depth", "staleness_samples", "max_required_samples", "active_tasks", "pending_queue",
    "replay_pending", "replay_running", "replay_finished",
)  # fmt: skip

#: Lanes whose doings are listed, of each group.
_MOST_LANES: Final = 4


def of_window(index: Index, start: int, end: int, state: str, lane: TimelineLane) -> dict[str, Any]:
    """Return the evidence for a bubble or a pause over [start, end) ns.

    `gauges` have the value at its start and at its end, `meanwhile` the states that covered most
    of it on other lanes, `slots` the requests in flight per replica and its capacity.
    """
    cause = _cause(state)
    return {
        "cause": cause,
        "meaning": CAUSES.get(cause) if cause else None,
        "gauges": _gauges(index, start, end),
        "meanwhile": _meanwhile(index, start, end, lane),
        "slots": _slots(index, start, end),
    }


def _cause(state: str) -> str | None:
    if state.startswith("paused:"):
        state = STATE_OF_PAUSE.get(state.removeprefix("paused:"), "bubble.paused")
    if state == "wait_samples":
        return "wait_samples"
    if state == UNATTRIBUTED or state.startswith("bubble."):
        return cause_of(state)
    return None


def _gauges(index: Index, start: int, end: int) -> list[dict[str, Any]]:
    found = []
    for number, (name, lane) in enumerate(index.names.gauges):
        if name in _DECIDING and lane != TOTAL:
            first, last = (_value_at(index, number, at) for at in (start, end))
            if first is not None or last is not None:
                found.append({"name": name, "lane": lane, "at_start": first, "at_end": last})
    return found


def _value_at(index: Index, gauge: int, at: int) -> float | None:
    low, high = index.arrays.gauge_bounds[gauge : gauge + 2]
    place = int(np.searchsorted(index.arrays.gauge_ts[low:high], at, side="right")) - 1
    return None if place < 0 else float(index.arrays.gauge_value[low + place])


def _slots(index: Index, start: int, end: int) -> list[dict[str, Any]]:
    capacity = {lane.id: lane.capacity for lane in index.names.lanes}
    found: list[dict[str, Any]] = []
    for number, (name, lane) in enumerate(index.names.gauges):
        if name == IN_FLIGHT and (lane != TOTAL) and len(found) < _MOST_LANES:
            mean = mean_value(index, number, start, max(1, end - start), 1)[0]
            known = None if np.isnan(mean) else float(mean)
            found.append({"lane": lane, "mean_in_flight": known, "capacity": capacity.get(lane)})
    return found


def _meanwhile(index: Index, start: int, end: int, of: TimelineLane) -> list[dict[str, Any]]:
    groups: dict[str, int] = {}
    chosen = []
    for number, lane in enumerate(index.names.lanes):
        if lane.role in {"bubbles", "requests", "device"} or lane.id == of.id:
            continue
        groups[lane.group] = groups.get(lane.group, 0) + 1
        if groups[lane.group] <= _MOST_LANES:
            chosen.append(number)
    series = lanes_series(index, chosen)
    found = cells(index.spans, series, start, max(1, end - start), 1)
    covered = found.covered[:, 0]
    best: dict[int, list[tuple[int, int]]] = {}
    for i in np.argsort(-covered, kind="stable"):
        state = int(index.arrays.series_state[series[i]])
        is_container = index.names.states[state] == "step"
        if covered[i] and not is_container:
            best.setdefault(int(index.arrays.series_lane[series[i]]), []).append(
                (state, int(covered[i]))
            )
    return [
        {
            "lane": index.names.lanes[number].name,
            "states": [
                {
                    "label": state_document(index.names.states[state])["label"],
                    "share": ns / max(1, end - start),
                }
                for state, ns in best[number][:3]
            ],
        }
        for number in chosen
        if number in best
    ]
