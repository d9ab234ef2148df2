"""What explains that a device idles: evidence from recorded events, as device intervals.

Every rule turns records into intervals (device, state, start_ns, end_ns); `ledger.sweep`
then gives each idle nanosecond to the most specific cause that covers it. A rule speaks only
where its records exist: an idle stretch that no rule covers stays `unknown`.

| cause | decided from |
|---|---|
| validation | the trainer waits while replicas answer validation requests, or validates on others' devices alone (see `occupancy`); a replica without work while a validation runs |
| lost_resume | the part of a rollouter pause behind the sync that should have ended it, up to the monitor's resume |
| poll_interval | the trainer still waits though every sample it then took was there: it sleeps until its next poll |
| weight_sync_wait | one side waits while the other transfers weights |
| staleness_quota, queue_full, drain | the rollouter's own pause, with its recorded reason |
| long_tail | the trainer waits for the last quarter of its batch while the replicas are less than half full |
| wait_samples | the trainer waits for samples, and none of the above |
| driver | the driver does something else: dispatch, metrics, balancing |
| no_prompts | a replica that has recorded a request has none, and nothing holds it back |
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rlinsight.analyzers.device_time.intervals import EMPTY, intersect, union
from rlinsight.analyzers.device_time.occupancy import device_names
from rlinsight.analyzers.device_time.states import STATE_ID
from rlinsight.analyzers.tables import within
from rlinsight.trace.topology import Pool, Topology

Window = tuple[int, int]

#: `long_tail` begins when this share of the batch is there and fewer slots than this are used.
TAIL_BATCH_SHARE = 0.75
TAIL_SLOT_SHARE = 0.5


@dataclass(frozen=True)
class Evidence:
    """The records of a run that explain idleness; what is used of them is within the window."""

    spans: pl.DataFrame
    all_requests: pl.DataFrame
    samples: pl.DataFrame
    markers: pl.DataFrame
    topology: Topology
    window: Window

    def on(self, roles: set[str], activity: str) -> pl.DataFrame:
        """Return the intervals of an activity on lanes of the given roles."""
        lanes = [lane.id for lane in self.topology.lanes if lane.role in roles]
        spans = self.spans if "trainer_rank" in roles else self._without_ranks
        mine = spans.lazy().filter(pl.col("lane").is_in(lanes) & (pl.col("activity") == activity))
        return (
            within(mine, self.window, "start_ns", "end_ns")
            .select("start_ns", end_ns=pl.col("end_ns").fill_null(self.window[1]))
            .collect()
        )

    @cached_property
    def requests(self) -> pl.DataFrame:
        """The requests of the window."""
        return within(self.all_requests, self.window, "submit_ns", "end_ns")

    def in_flight(self, requests: pl.DataFrame) -> pl.DataFrame:
        """Return when each of `requests` was in flight; an open one is to the window's end."""
        return requests.select(
            start_ns="submit_ns", end_ns=pl.col("end_ns").fill_null(self.window[1])
        )

    @cached_property
    def _without_ranks(self) -> pl.DataFrame:
        """The spans of all other lanes: ranks record nearly all of them."""
        ranks = [lane.id for lane in self.topology.lanes if lane.role == "trainer_rank"]
        return self.spans.filter(~pl.col("lane").is_in(ranks))

    def devices(self, pool: Pool) -> list[str]:
        """Return the ids of the devices of a pool."""
        return [device.id for device in self.topology.devices if device.pool == pool]

    def waits(self) -> pl.DataFrame:
        """Return the driver's waits for samples."""
        return self.on({"trainer"}, "wait_samples")


def evidence_intervals(known: Evidence) -> pl.DataFrame:
    """Return the intervals (device, state, start_ns, end_ns) of all rules."""
    waits = known.waits()
    batches = _batches(known)
    trainer = {
        "bubble.validation": intersect(waits, _validating(known)),
        "bubble.weight_sync_wait": intersect(waits, known.on({"replica"}, "weight_sync")),
        "bubble.poll_interval": _poll_parts(known, batches),
        "bubble.long_tail": intersect(_tails(batches), _underfilled(known)),
    }
    rollout = {
        "bubble.validation": known.on({"trainer", "rollouter"}, "validate"),
        "bubble.weight_sync_wait": known.on({"trainer"}, "weight_sync"),
        "bubble.checkpoint_wait": known.on({"rollouter"}, "checkpoint"),
        "bubble.lost_resume": _lost_resumes(known),
    }
    tables = [_for_devices(known, known.devices("trainer"), trainer)]
    tables += [_for_devices(known, known.devices("rollout"), rollout)]
    tables += [_without_requests(known)]
    return pl.concat(tables)


def _for_devices(
    known: Evidence, devices: list[str], states: dict[str, pl.DataFrame]
) -> pl.DataFrame:
    parts = [
        intervals.select(*EMPTY.columns).with_columns(state=pl.lit(STATE_ID[state], pl.UInt8))
        for state, intervals in states.items()
    ]
    ids = pl.DataFrame({"device": devices}, schema={"device": device_names(known.topology)})
    return ids.join(pl.concat(parts), how="cross").select("device", "state", *EMPTY.columns)


def _validating(known: Evidence) -> pl.DataFrame:
    validating = known.requests.filter(pl.col("validate").fill_null(value=False))
    return pl.concat([known.in_flight(validating), known.on({"rollouter"}, "validate")])


def _batches(known: Evidence) -> pl.DataFrame:
    """Return each wait with the production times of the samples that it waited for.

    Those are the samples taken from its start on, up to the next wait: a queue is emptied
    while the trainer waits, a replay buffer once it has waited.
    """
    taken = known.samples.filter(
        pl.col("consumed_ns").is_not_null() & pl.col("produced_ns").is_not_null()
    ).select("consumed_ns", "produced_ns")
    waits = known.waits().sort("start_ns")
    return (
        taken.sort("consumed_ns")
        .join_asof(waits, left_on="consumed_ns", right_on="start_ns", coalesce=False)
        .filter(pl.col("start_ns").is_not_null())
        .group_by("start_ns", "end_ns")
        .agg(
            ready_ns=pl.col("produced_ns").max(),
            tail_ns=pl.col("produced_ns").sort().get(_count_of_share() - 1),
        )
    )


def _count_of_share() -> pl.Expr:
    """Return how many samples of a batch make up `TAIL_BATCH_SHARE` of it."""
    return (pl.len() * TAIL_BATCH_SHARE).ceil().cast(pl.Int64)


def _poll_parts(known: Evidence, batches: pl.DataFrame) -> pl.DataFrame:
    """The part of each wait in which its whole batch was there and the buffer slept."""
    ready = batches.select(start_ns=pl.max_horizontal("start_ns", "ready_ns"), end_ns="end_ns")
    return intersect(ready, known.on({"queue"}, "other:poll"))


def _tails(batches: pl.DataFrame) -> pl.DataFrame:
    """The part of each wait in which only the last quarter of its batch was missing."""
    return batches.select(
        start_ns=pl.max_horizontal("start_ns", "tail_ns"),
        end_ns=pl.min_horizontal("end_ns", "ready_ns"),
    )


def _underfilled(known: Evidence) -> pl.DataFrame:
    """When the replicas together run less than half of what they could.

    Beside standalone replicas, hybrid ones count while they answer requests: at other times they
    sleep or train. Where nothing runs since the rollouter pauses, that is no tail.
    """
    lent = known.topology.replicas("hybrid") if known.topology.replicas("standalone") else []
    slots = {lane.id: lane.capacity for lane in known.topology.replicas()}
    if not slots or None in slots.values() or known.requests.is_empty():
        return EMPTY
    always = sum(slots[lane] or 0 for lane in slots.keys() - {lane.id for lane in lent})
    running = known.in_flight(known.requests)
    changes = [
        _changes(_from(*known.window), slots=always),
        _changes(running, running=1),
        _changes(known.on({"rollouter"}, "paused"), paused=1),
    ]
    for lane in lent:
        busy = union(known.in_flight(known.requests.filter(pl.col("lane") == lane.id)))
        changes.append(_changes(busy, slots=lane.capacity or 0))
    state = (
        pl.concat(changes)
        .group_by("start_ns")
        .agg(pl.col("slots", "running", "paused").sum())
        .sort("start_ns")
        .with_columns(pl.col("slots", "running", "paused").cum_sum())
        .with_columns(end_ns=pl.col("start_ns").shift(-1))
    )
    few = pl.col("running") < TAIL_SLOT_SHARE * pl.col("slots")
    held_back = (pl.col("running") == 0) & (pl.col("paused") > 0)
    return state.filter(few & ~held_back).select(*EMPTY.columns)


def _changes(
    intervals: pl.DataFrame, *, slots: int = 0, running: int = 0, paused: int = 0
) -> pl.DataFrame:
    """Return what is more from each start on, and less from each end, of what takes time."""
    intervals = intervals.filter(pl.col("start_ns") < pl.col("end_ns"))
    amounts = {"slots": slots, "running": running, "paused": paused}
    up, down = (
        intervals.select(
            pl.col(column).alias("start_ns"),
            *(pl.lit(sign * value, pl.Int64).alias(name) for name, value in amounts.items()),
        )
        for column, sign in (("start_ns", 1), ("end_ns", -1))
    )
    return pl.concat([up, down])


def _lost_resumes(known: Evidence) -> pl.DataFrame:
    """From each `lost_resume` marker to the end of the pause that it fell into."""
    lost = known.markers.filter(pl.col("kind") == "lost_resume").select("ts_ns").sort("ts_ns")
    pauses = known.on({"rollouter"}, "paused").sort("start_ns")
    return (
        lost.join_asof(pauses, left_on="ts_ns", right_on="start_ns")
        .filter(pl.col("ts_ns") < pl.col("end_ns"))
        .select(start_ns="ts_ns", end_ns="end_ns")
    )


def _without_requests(known: Evidence) -> pl.DataFrame:
    """A replica that has ever recorded a request tells by silence that it has none.

    Before the first request of the run, and before its first step, engines are being started.
    """
    steps = known.spans.filter(pl.col("activity") == "step")
    begun = pl.concat([known.all_requests["submit_ns"], steps["start_ns"]])
    first_ns = begun.min()
    heard = set(known.all_requests["lane"].unique())
    lanes = [lane for lane in known.topology.replicas() if lane.id in heard]
    devices = {device for lane in lanes for device in lane.devices}
    rollout, (start, end) = known.devices("rollout"), known.window
    since = max(start, first_ns) if isinstance(first_ns, int) else end
    silent = {"bubble.no_prompts": _from(since, end)}
    return _for_devices(known, [device for device in rollout if device in devices], silent)


def _from(start_ns: int, end_ns: int) -> pl.DataFrame:
    return union(pl.DataFrame({"start_ns": [start_ns], "end_ns": [end_ns]}))
