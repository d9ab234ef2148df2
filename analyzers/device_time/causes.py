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
| no_prompts | a replica that records its requests has none, and nothing holds it back |
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rlinsight.analyzers.device_time.intervals import EMPTY, intersect, level, union
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
    """The records of a run that explain idleness; of `spans`, `on` takes those in the window."""

    spans: pl.DataFrame
    requests: pl.DataFrame
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
    requests = known.requests.filter(pl.col("validate").fill_null(value=False)).select(
        start_ns="submit_ns", end_ns=pl.col("end_ns").fill_null(known.window[1])
    )
    return pl.concat([requests, known.on({"rollouter"}, "validate")])


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
    """When the replicas together run less than half of what they could."""
    capacity = [lane.capacity for lane in known.topology.replicas()]
    if not capacity or None in capacity:
        return EMPTY
    running = level(
        known.requests.select(
            start_ns="submit_ns", end_ns=pl.col("end_ns").fill_null(known.window[1])
        )
    )
    limit = TAIL_SLOT_SHARE * sum(c for c in capacity if c is not None)
    return running.filter(pl.col("count") < limit).select(*EMPTY.columns)


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
    """A replica that has recorded a request tells by silence that it has none."""
    heard = set(known.requests["lane"].unique())
    lanes = [lane for lane in known.topology.replicas() if lane.id in heard]
    devices = sorted({device for lane in lanes for device in lane.devices})
    rollout = set(known.devices("rollout"))
    start, end = known.window
    window = pl.DataFrame({"start_ns": [start], "end_ns": [end]})
    silent = {"bubble.no_prompts": union(window)}
    return _for_devices(known, [device for device in devices if device in rollout], silent)
