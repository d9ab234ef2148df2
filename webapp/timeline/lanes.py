"""The rows of the timeline: groups, the lanes in them, and the states that a lane can show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rlinsight.analyzers.device_time.states import STATE_OF_PAUSE, STATES, kind
from rlinsight.trace.topology import Lane, Topology
from rlinsight.webapp import palette

#: Groups from top to bottom: id and title.
GROUPS: Final = (
    ("bubbles", "Bubbles"),
    ("trainer", "Trainer"),
    ("rollouter", "Rollouter"),
    ("hybrid", "Hybrid replicas"),
    ("colocated", "Colocated replicas"),
    ("standalone", "Standalone replicas"),
    ("queue", "Queue"),
    ("others", "Reward and agents"),
    ("devices", "Devices"),
)

#: Above this many devices the timeline begins with the fleet: one summary row per group.
FLEET_DEVICES: Final = 64

BUBBLES_OF: Final = "bubbles:"
REQUESTS_OF: Final = "requests:"
DEVICE: Final = "device:"


@dataclass(frozen=True)
class TimelineLane:
    """One lane. `id` is unique; `name` is what the trace calls it, `of` the lane it details.

    `rows` is how many rows of intervals it has, `area` whether a gauge is drawn on it (of
    `capacity`, None where that is unknown).
    """

    id: str
    name: str
    group: str
    role: str
    rows: int = 1
    area: bool = False
    capacity: int | None = None
    of: str | None = None
    kind: str | None = None
    pool: str | None = None
    node: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def lanes_of(
    topology: Topology, recorded: Iterable[str], bubbles: Sequence[str], requested: Collection[str]
) -> list[TimelineLane]:
    """Return all lanes, in the order they are drawn.

    `recorded` are the lanes that rows name and `requested` those that requests name, declared or
    not; `bubbles` are the owners of bubbles.
    """
    declared = {lane.id for lane in topology.lanes}
    named = {*recorded, *requested}
    unknown = [Lane(name, role="other") for name in sorted(named - declared)]
    found = [_bubbles(owner) for owner in bubbles]
    for lane in (*topology.lanes, *unknown):
        found.append(_lane(lane))
        if lane.role == "replica" or lane.id in requested:
            found.append(_requests(lane))
    found += [
        TimelineLane(
            DEVICE + d.id, d.id, "devices", "device", kind=d.kind, pool=d.pool, node=d.node
        )
        for d in topology.devices
    ]
    order = [group for group, _ in GROUPS]
    return sorted(found, key=lambda lane: (order.index(lane.group), _rank(lane)))


def _rank(lane: TimelineLane) -> int:
    if lane.group == "devices":
        return 0 if lane.pool == "trainer" else 1
    return 0 if lane.role == "trainer" else 1


def _bubbles(owner: str) -> TimelineLane:
    return TimelineLane(BUBBLES_OF + owner, f"{owner} idles", "bubbles", "bubbles")


def _lane(lane: Lane) -> TimelineLane:
    return TimelineLane(
        id=lane.id,
        name=lane.id,
        group=_group(lane),
        role=lane.role,
        area=lane.role in {"replica", "queue"},
        capacity=lane.capacity,
        kind=lane.engine_kind,
        node=lane.node,
    )


def _requests(lane: Lane) -> TimelineLane:
    return TimelineLane(
        REQUESTS_OF + lane.id, lane.id, _group(lane), "requests", of=lane.id, kind=lane.engine_kind
    )


def _group(lane: Lane) -> str:
    if lane.role in {"trainer", "trainer_rank"}:
        return "trainer"
    if lane.role in {"rollouter", "queue"}:
        return lane.role
    if lane.role == "replica":
        return lane.engine_kind or "standalone"
    return "others"


def state_document(name: str) -> dict[str, str]:
    """Return how a state is drawn: label, colour, pattern ("" is plain) and kind.

    A state is an activity, `paused:REASON`, a state of the device ledger, or what a request does.
    """
    base, _, reason = name.partition(":")
    if name in STATES:
        return _drawn(_label(name), palette.state_colour(name), name, kind(name))
    if base == "paused":
        state = STATE_OF_PAUSE.get(reason, "bubble.paused")
        return _drawn(f"paused: {reason}", palette.state_colour(state), state, "bubble")
    if name in _REQUEST_STATES:
        label, colour, pattern = _REQUEST_STATES[name]
        return {"label": label, "colour": colour, "pattern": pattern, "kind": "request"}
    if name == "wait_samples":
        return _drawn(name, palette.activity_colour(name), "bubble.wait_samples", "bubble")
    label = reason if base == "other" else name
    return _drawn(label, palette.activity_colour(name), "", _kind_of_activity(name))


def _drawn(label: str, colour: str, state: str, kind: str) -> dict[str, str]:
    pattern = palette.PATTERN.get(state, "")
    return {"label": label, "colour": colour, "pattern": pattern, "kind": kind}


def _label(state: str) -> str:
    if state == "unattributed":
        return "unattributed"
    return state.removeprefix("train.").removeprefix("bubble.")


def _kind_of_activity(name: str) -> str:
    if name == "step":
        return "container"
    return "other" if name.startswith("other:") else "work"


_REQUEST_STATES: Final = {
    "request.first_token": ("to first token", "#8fc9b5", ""),
    "request.decode": ("decode", palette.STATE["generate"], ""),
    "request.length": ("decode, cut at the cap", "#00664b", ""),
    "request.abort": ("aborted", palette.STATE["bubble.long_tail"], "/"),
    "request.error": ("error", palette.STATE["bubble.lost_resume"], "x"),
    "request.validate": ("validation request", palette.STATE["validate"], ""),
    "request.open": ("in flight", "#3fb08f", ""),
}
