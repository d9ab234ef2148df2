"""Clocks of several nodes brought onto one: the reference node's.

A round trip is sent by the reference node at `t_send` (its clock), stamped by the other
node at `t_remote` (that node's clock), and back at `t_recv` (reference clock). The offset
of a node is *its clock minus the reference clock*; a corrected time is the recorded time
minus the offset. The remote stamp was taken between sending and receiving, so

    offset = t_remote - (t_send + t_recv) / 2    with an error of at most rtt / 2.

Worked example: sent at 1000 ns, stamped 5300 ns, back at 1400 ns. The offset is 4100 ns, at
most 200 ns wrong; a time of 5300 ns recorded there was 1200 ns on the reference clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rlinsight.errors import TraceError
from rlinsight.trace.fitting import fitting

if TYPE_CHECKING:
    import pyarrow as pa

#: Above this error a node counts as uncalibrated. What is compared across nodes (a pause, a
#: weight sync and its acknowledgement) lasts tens of milliseconds and more; a round trip
#: over Ray between two nodes takes 0.5 to 4 ms, so a calibrated node is well below it.
MAX_RESIDUAL_NS: Final = 5_000_000

#: A clock that runs wrong by more than this (NTP slews by at most 500 ppm) was stepped.
MAX_DRIFT: Final = 1e-3

#: Half of what a time can be: sums and differences of two such times are times, too.
_LATEST_NS: Final = 1 << 62
_BEST_SHARE: Final = 4  # the quickest quarter of the round trips is used


class RoundTrip(NamedTuple):
    """One exchange of stamps, in ns: reference, remote, reference clock."""

    t_send: int
    t_remote: int
    t_recv: int

    @property
    def rtt_ns(self) -> int:
        """How long it took on the reference clock."""
        return self.t_recv - self.t_send

    @property
    def offset_ns(self) -> int:
        """Remote clock minus reference clock, at most `rtt_ns / 2` wrong."""
        return self.t_remote - (self.t_send + self.t_recv) // 2


@dataclass(frozen=True)
class OffsetEstimate:
    """A node's clock minus the reference clock, around `at_ns` of that node's clock.

    The true offset lies within `residual_ns` of `offset_ns`.
    """

    at_ns: int
    offset_ns: int
    residual_ns: int
    rtt_ns: int


def estimate_offset(round_trips: Iterable[tuple[int, int, int]]) -> OffsetEstimate:
    """Estimate an offset from (t_send, t_remote, t_recv) triples, in ns.

    Uses the quickest quarter: their median offset; the residual is half the shortest round
    trip plus the largest distance of one of them from that median. Raises TraceError when
    there is no round trip that ends after it began.
    """
    usable = [trip for trip in map(RoundTrip._make, round_trips) if trip.rtt_ns >= 0]
    if not usable:
        raise TraceError("expected at least one clock round trip with t_recv >= t_send")
    usable.sort(key=lambda trip: trip.rtt_ns)
    best = usable[: max(1, len(usable) // _BEST_SHARE)]
    middle = sorted(best, key=lambda trip: trip.offset_ns)[len(best) // 2]
    spread = max(abs(trip.offset_ns - middle.offset_ns) for trip in best)
    rtt_ns = best[0].rtt_ns
    # One more ns for the halves that integer division rounds away.
    residual_ns = -(-rtt_ns // 2) + spread + 1
    return OffsetEstimate(middle.t_remote, middle.offset_ns, residual_ns, rtt_ns)


@dataclass(frozen=True)
class NodeClock:
    """How one node's clock relates to the reference, from estimates at start and end.

    Between and beyond the first and the last estimate the offset changes linearly. A change
    too fast for a drifting clock is taken as a step: the best estimate then holds
    throughout, and the whole change is added to the residual.
    """

    estimates: tuple[OffsetEstimate, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.estimates, key=lambda e: e.at_ns)
        object.__setattr__(self, "estimates", tuple(ordered))

    @property
    def drift(self) -> float:
        """Nanoseconds gained on the reference per nanosecond; 0.0 when not known."""
        raw = self._raw_drift()
        return raw if abs(raw) <= MAX_DRIFT else 0.0

    @property
    def residual_ns(self) -> int | None:
        """The largest error of a corrected time, None when nothing was measured."""
        if not self.estimates:
            return None
        worst = max(estimate.residual_ns for estimate in self.estimates)
        misfit = max(abs(self.offset_at(e.at_ns) - e.offset_ns) for e in self.estimates)
        return worst + misfit

    def offset_at(self, time_ns: int) -> int:
        """Return this clock minus the reference at `time_ns` of this clock, in ns."""
        if not self.estimates:
            return 0
        origin = self._origin()
        return origin.offset_ns + round((time_ns - origin.at_ns) * self.drift)

    def corrected(self, time_ns: int) -> int:
        """Return `time_ns` of this clock as a time of the reference clock, in ns."""
        return time_ns - self.offset_at(time_ns)

    def correct(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """Correct a column of int64 times; null stays null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.estimates:
            return times
        origin, drift = self._origin(), self.drift
        times = pc.subtract(times, pa.scalar(origin.offset_ns, pa.int64()))
        if drift == 0.0:
            return times
        since = pc.subtract(times, pa.scalar(origin.at_ns - origin.offset_ns, pa.int64()))
        gained = pc.round(pc.multiply(since.cast(pa.float64(), safe=False), drift))
        return pc.subtract(times, gained.cast(pa.int64(), safe=False))

    def is_calibrated(self) -> bool:
        """Whether times of this node may be compared with those of others."""
        residual_ns = self.residual_ns
        return residual_ns is not None and residual_ns <= MAX_RESIDUAL_NS

    def _origin(self) -> OffsetEstimate:
        if self.drift:
            return self.estimates[0]
        return min(self.estimates, key=lambda e: e.residual_ns)

    def _raw_drift(self) -> float:
        if len(self.estimates) < 2:
            return 0.0
        first, last = self.estimates[0], self.estimates[-1]
        if last.at_ns == first.at_ns:
            return 0.0
        return (last.offset_ns - first.offset_ns) / (last.at_ns - first.at_ns)


@dataclass(frozen=True)
class Clocks:
    """The clocks of all nodes of a run. Without a `reference`, all nodes share one clock."""

    reference: str | None = None
    nodes: Mapping[str, NodeClock] = field(default_factory=dict)

    def of(self, node: str) -> NodeClock:
        """Return the clock of a node; the reference node's needs no correction."""
        if node == self.reference:
            return _REFERENCE
        return self.nodes.get(node, NodeClock())

    def uncalibrated(self, nodes: Iterable[str]) -> frozenset[str]:
        """Return those of `nodes` whose times must not be compared with the others'.

        A single node needs no calibration.
        """
        present = frozenset(nodes)
        if len(present) < 2 and self.reference is None:
            return frozenset()
        if present <= {self.reference}:
            return frozenset()
        return frozenset(n for n in present if not self.of(n).is_calibrated())

    def merge(self, other: Clocks) -> Clocks:
        """Return the union of the estimates; the reference of `self` wins."""
        nodes = {
            node: NodeClock(tuple(dict.fromkeys(self._estimates(node) + other._estimates(node))))
            for node in (*self.nodes, *other.nodes)
        }
        return Clocks(self.reference or other.reference, nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form stored in the manifest."""
        return {
            "reference": self.reference,
            "nodes": {
                node: {
                    "estimates": [asdict(estimate) for estimate in clock.estimates],
                    "residual_ns": clock.residual_ns,
                    "drift": clock.drift,
                }
                for node, clock in self.nodes.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Clocks:
        """Read the JSON form. Raises KeyError, TypeError, ValueError or AttributeError."""
        return cls(
            fitting(cls, data, without=["nodes"]).get("reference"),
            {
                node: NodeClock(tuple(_estimate(item) for item in clock["estimates"]))
                for node, clock in (data.get("nodes") or {}).items()
            },
        )

    def _estimates(self, node: str) -> tuple[OffsetEstimate, ...]:
        return self.nodes[node].estimates if node in self.nodes else ()


def _estimate(data: Mapping[str, Any]) -> OffsetEstimate:
    estimate = OffsetEstimate(**fitting(OffsetEstimate, data))
    for name, value in vars(estimate).items():
        if abs(value) > _LATEST_NS:
            raise ValueError(f"expected `{name}` of an estimate within 146 years, found {value} ns")
    return estimate


_REFERENCE: Final = NodeClock((OffsetEstimate(0, 0, 0, 0),))
