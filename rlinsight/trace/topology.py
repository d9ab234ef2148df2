"""Devices and lanes of a run: who occupied what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rlinsight.trace.fitting import fitting

DeviceKind = Literal["cuda", "npu", "cpu", "emulated"]
Pool = Literal["trainer", "rollout"]
EngineKind = Literal["hybrid", "standalone", "colocated"]
LaneRole = Literal["trainer", "trainer_rank", "rollouter", "replica", "queue", "reward", "other"]


@dataclass(frozen=True)
class Device:
    """One accelerator (or one CPU slot standing for one).

    `id` is unique in the run, by convention `<node>/<index>`. `uuid` is the vendor's
    identifier where there is one, so that device samples can be matched to lanes.
    """

    id: str
    node: str
    index: int
    kind: DeviceKind
    pool: Pool
    uuid: str | None = None


@dataclass(frozen=True)
class Lane:
    """One row of the timeline: a process or engine that does one thing at a time, or a replica.

    `id` is unique in the run. `capacity` is the number of requests a replica can run at
    once. `rank` is the global rank of a trainer worker, `replica` the number of a replica.
    """

    id: str
    role: LaneRole
    devices: Sequence[str] = ()
    engine_kind: EngineKind | None = None
    capacity: int | None = None
    rank: int | None = None
    replica: int | None = None
    node: str | None = None
    pid: int | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        # A text is a sequence, too, but of letters.
        devices = (self.devices,) if isinstance(self.devices, str) else tuple(self.devices)
        object.__setattr__(self, "devices", devices)


@dataclass(frozen=True)
class Topology:
    """All devices and lanes of a run, in order of declaration."""

    devices: Sequence[Device] = ()
    lanes: Sequence[Lane] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "lanes", tuple(self.lanes))

    def lane(self, lane_id: str) -> Lane | None:
        """Return the lane with this id, or None."""
        return next((lane for lane in self.lanes if lane.id == lane_id), None)

    def replicas(self, engine_kind: EngineKind | None = None) -> tuple[Lane, ...]:
        """Return the replica lanes, of one engine kind if given.

        Hybrid replicas live on trainer devices: the number of replicas is not the number
        of standalone rollouters.
        """
        return tuple(
            lane
            for lane in self.lanes
            if lane.role == "replica" and engine_kind in (None, lane.engine_kind)
        )

    def merge(self, other: Topology) -> Topology:
        """Return the union; where both declare an id, non-null fields of `other` win.

        The devices of a lane are those of both.
        """
        return Topology.union((self, other))

    @classmethod
    def union(cls, topologies: Iterable[Topology]) -> Topology:
        """Merge any number of them, in order, in time linear in what they declare."""
        merged = tuple(topologies)
        return cls(
            devices=_merged(device for topology in merged for device in topology.devices),
            lanes=_merged(lane for topology in merged for lane in topology.lanes),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form stored in the manifest."""
        return {
            "devices": [asdict(device) for device in self.devices],
            "lanes": [asdict(lane) | {"devices": list(lane.devices)} for lane in self.lanes],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Topology:
        """Read the JSON form; unknown keys of a newer writer are ignored.

        Raises ValueError for a value of a wrong type, TypeError for a missing one.
        """
        known = fitting(_Lists, data)
        return cls(
            devices=tuple(Device(**fitting(Device, item)) for item in known.get("devices", ())),
            lanes=tuple(Lane(**fitting(Lane, item)) for item in known.get("lanes", ())),
        )


@dataclass(frozen=True)
class _Lists:
    """The JSON form before its items are looked at."""

    devices: Sequence[Any]
    lanes: Sequence[Any]


def _merged(items: Iterable[Any]) -> tuple[Any, ...]:
    by_id: dict[str, Any] = {}
    for item in items:
        known = by_id.get(item.id)
        if known is None:
            by_id[item.id] = item
            continue
        update = {k: v for k, v in vars(item).items() if v not in (None, ())}
        if isinstance(item, Lane):  # several processes may each know some of a lane's devices
            update["devices"] = tuple(dict.fromkeys((*known.devices, *item.devices)))
        by_id[item.id] = type(item)(**(vars(known) | update))
    return tuple(by_id.values())
