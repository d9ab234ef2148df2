"""What the advisor says of engines: how much they run at once, and which of them is slow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import SHORT, balance, case, fired, sample
from simulated import job

import rlinsight
from rlinsight.analyzers.advise.rules import engine, routing
from rlinsight.analyzers.engines.pressure import KvPressure
from rlinsight.analyzers.engines.replica_speed import ReplicaSpeed
from rlinsight.analyzers.engines.slots import KindSlots, LaneSlots, SlotUse
from rlinsight.analyzers.engines.spread import RequestSpread

# -- how much runs at once -----------------------------------------------------------------


def queueing(queued: float | None, peak_running: int = 8) -> SlotUse:
    base = sample("fully_async").slots.lanes[0]
    lane: LaneSlots = replace(
        base, lane="replica1", over_capacity_ratio=queued, peak_running=peak_running
    )
    return SlotUse({}, (lane,))


@pytest.mark.parametrize(("queued", "fires"), [(0.31, True), (0.29, False), (None, False)])
def test_engines_with_a_queue_and_memory_run_more_at_once(queued, fires):
    plain = balance(kv_pressure=())
    found = engine.concurrency(case(job(**SHORT), slots=queueing(queued), balance=plain))
    assert fires == (not isinstance(found, str))
    if fires:
        assert found.changes == {"max_num_seqs": 2}


PRESSED = KvPressure("replica1", "preempting", 0.95, 0.99, None, None, 0.5, 12, 300)


def test_engines_under_pressure_get_no_more_and_are_told_so():
    pressed = balance(kv_pressure=(PRESSED,))
    told = engine.concurrency(case(job(**SHORT), slots=queueing(0.9), balance=pressed))
    assert "under pressure" in told
    slots = queueing(0.9, peak_running=20)  # in flight: some wait for one of the 8 slots
    found = engine.kv_pressure(case(job(max_num_seqs=8), slots=slots, balance=pressed))
    assert found.overrides == ("actor_rollout_ref.rollout.max_num_seqs=6",)
    assert found.effect is None  # preemption is not simulated: nothing is claimed
    assert found.evidence[0].windows == ((0.0, sample("fully_async").run.duration_s),)
    assert isinstance(engine.kv_pressure(case(None, balance=balance(kv_pressure=()))), str)


def test_fewer_at_once_are_fewer_than_ever_ran():
    """Three quarters of 1024 slots would change nothing where at most 256 requests ran."""
    slots, pressed = queueing(0.0, peak_running=256), balance(kv_pressure=(PRESSED,))
    found = engine.kv_pressure(case(job(max_num_seqs=1024), slots=slots, balance=pressed))
    assert found.changes == {"max_num_seqs": 192}


@pytest.mark.parametrize(
    ("preemptions", "requests", "ceiling"),
    [
        (12, 300, "At most 4.0% of the requests there were computed twice: a small ceiling."),
        (15, 300, "At most 5.0% of the requests there were computed twice."),
        (450, 300, "1.5 preemptions for each request: much of the work was done again."),
        (0, 300, "Nothing was preempted, so that nothing was computed twice yet."),
        (12, 0, "12 preemptions, of requests that were not recorded: no ceiling is known."),
        (None, None, "Preemptions were not counted, so that the ceiling of this is not known."),
    ],
)
def test_what_less_preemption_gains_at_most_is_of_the_same_requests(preemptions, requests, ceiling):
    """The report's requests are of the steady window and one kind; these are not divided by."""
    one = replace(PRESSED, preemptions=preemptions, requests=requests)
    uncounted = replace(PRESSED, lane="replica2", preemptions=None, requests=None)
    found = engine.kv_pressure(case(None, balance=balance(kv_pressure=(one, uncounted))))
    assert found.says.endswith(f"fewer sequences at once. {ceiling}")


#: Sixteen slots, of which the limit of one prompt per replica uses one.
LIMITED = {"rollout_devices": 2, "lengths": (8, 12), "train_s": 1.0, "max_num_seqs": 16,
           "mini_batch": 8, "staleness_threshold": 1.0, "concurrent_samples": 1}  # fmt: skip


def in_use(used: float) -> SlotUse:
    return SlotUse({"standalone": KindSlots(2, used, 1.0, 0.0)}, ())


@pytest.mark.parametrize(
    ("used", "waits", "limit", "fires"),
    [
        (0.69, 0.3, 1, True), (0.71, 0.3, 1, False), (0.3, 0.09, 1, False), (0.3, 0.3, 8, False),
    ],
)  # fmt: skip
def test_a_limit_of_prompts_that_leaves_slots_unused_is_raised(used, waits, limit, fires):
    plain = balance(kv_pressure=())
    work = job(**{**LIMITED, "concurrent_samples": limit})
    found = engine.concurrent_samples(
        case(work, slots=in_use(used), balance=plain, bubbles={("trainer", "wait_samples"): waits})
    )
    assert fired(found) == fires
    if fires:
        assert found.overrides == ("async_training.concurrent_samples_per_replica=4",)


# -- replicas beside each other ------------------------------------------------------------


@pytest.mark.parametrize("slow", [True, False])
def test_a_slow_replica_is_named(slow):
    speed = ReplicaSpeed("replica1", 10, 1000, 30.0, 4.0, 1.6, slow)
    found = engine.slow_replica(case(None, balance=balance(replicas=(speed,))))
    assert slow == (not isinstance(found, str))


def topology(slow_node: str) -> rlinsight.Topology:
    devices = [rlinsight.Device(f"{node}/0", node=node, index=0, kind="cuda", pool="rollout")
               for node in ("n1", "n2")]  # fmt: skip
    lanes = [rlinsight.Lane("replica1", role="replica", devices=["n1/0"], engine_kind="standalone"),
             rlinsight.Lane("replica2", role="replica", devices=[f"{slow_node}/0"],
                            engine_kind="standalone")]  # fmt: skip
    return rlinsight.Topology(devices=devices, lanes=lanes)


@pytest.mark.parametrize(("node", "named"), [("n2", True), ("n1", False)])
def test_a_node_is_named_where_it_holds_the_slow_replicas_alone(node, named):
    speeds = (ReplicaSpeed("replica1", 10, 1000, 20.0, 4.0, 1.0, False),
              ReplicaSpeed("replica2", 10, 1000, 30.0, 4.0, 1.6, True))  # fmt: skip
    asked = case(None, balance=balance(replicas=speeds))
    asked.topology = topology(node)
    assert ("node `n2`" in engine.slow_replica(asked).says) == named


@pytest.mark.parametrize(
    ("verdict", "text"),
    [("one_replica", "`replica1` carries 90%"), ("serialized", "1.2 requests are in flight")],
)
def test_requests_that_do_not_spread_are_told(verdict, text):
    spread = RequestSpread(
        verdict,
        {"replica1": 0.9, "replica2": 0.1},
        {"replica1": 0.9, "replica2": 0.1},
        "replica1",
        100,
        1.2,
        None,
    )
    found = routing.request_routing(case(None, balance=balance(requests=spread)))
    assert text in found.says
    even = replace(spread, verdict="even")
    assert isinstance(routing.request_routing(case(None, balance=balance(requests=even))), str)
