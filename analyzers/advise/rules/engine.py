"""Tier 3: the rollout engines: concurrency, memory pressure, slow replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.engines.pressure import KvPressure

QUEUES: Final = 0.30
#: A replica under pressure gives up this share of its slots.
GIVE_UP: Final = 0.25
#: Replicas with fewer of their slots in use have room for more prompts.
ROOM: Final = 0.70
WAITS: Final = 0.10
#: Preemptions for each request below which little is computed twice.
FEW: Final = 0.05


def concurrency(case: Case) -> Proposal | str:
    """Engines that run at their limit of sequences with memory to spare get more."""
    queued = [lane for lane in case.report.slots.lanes if lane.over_capacity_ratio is not None]
    if not queued:
        return "the slots of the replicas are not known"
    if case.knobs is None:
        return NOT_CALIBRATED
    worst = max(queued, key=lambda lane: lane.over_capacity_ratio or 0.0)
    share = worst.over_capacity_ratio or 0.0
    if share < QUEUES:
        return f"requests queue in front of `{worst.lane}` {share:.0%} of the time"
    if case.report.balance.kv_pressure:
        return "the KV cache is under pressure: more requests would be preempted"
    effect = case.best(_more(case))
    if effect is None:
        return "more concurrency is predicted to gain nothing"
    says = (
        f"Requests queue in front of `{worst.lane}` {share:.0%} of the time, and it has memory to "
        "spare: let more run at once."
    )
    return case.propose(says, (case.shown("time with more requests than slots", share),), effect)


def concurrent_samples(case: Case) -> Proposal | str:
    """More prompts per replica, where the limit of fully_async leaves slots and memory unused."""
    if case.mode() != "fully_async":
        return "only fully_async limits prompts per replica"
    if case.knobs is None:
        return NOT_CALIBRATED
    knobs = case.knobs
    limit = knobs.standalone_replicas * knobs.concurrent_samples
    if limit >= knobs.max_required_samples:
        return f"the staleness quota ({knobs.max_required_samples} prompts) binds before the limit"
    if case.report.balance.kv_pressure:
        return "the KV cache is under pressure: more requests would be preempted"
    kind = case.report.slots.by_kind.get("standalone")
    used = kind.utilization if kind is not None else None
    if used is None or used >= ROOM:
        return "the slots of the replicas are not known" if used is None else (
            f"{used:.0%} of the slots are in use"
        )  # fmt: skip
    waits = case.bubble("trainer", "wait_samples", "long_tail")
    if waits < WAITS:
        return f"the trainer waits {waits:.1%} of its time"
    more = [{"concurrent_samples": knobs.concurrent_samples * factor} for factor in (2, 4)]
    effect = case.best(more)
    if effect is None:
        return "more prompts per replica are predicted to gain nothing"
    says = (
        f"{used:.0%} of the slots are in use while the trainer waits {waits:.0%} of its time: the "
        f"limit of {knobs.concurrent_samples} prompts per replica is what holds the rollouts."
    )
    evidence = (
        case.shown("slots in use", used),
        case.shown("trainer waits for samples", waits, owner="trainer", causes=("wait_samples",)),
    )
    return case.propose(says, evidence, effect)


def kv_pressure(case: Case) -> Proposal | str:
    """Engines that preempt recompute what they had: fewer at once."""
    pressed = case.report.balance.kv_pressure
    if not pressed:
        return "no replica is short of KV cache"
    worst = max(pressed, key=lambda replica: replica.preemptions or 0)
    says = (
        f"`{worst.lane}` fills {worst.peak:.0%} of its KV cache"
        f"{f' and preempted {worst.preemptions} requests' if worst.preemptions else ''}: give it "
        f"more memory, or fewer sequences at once. {_ceiling(pressed)}"
    )
    evidence = (case.shown("KV cache, peak", worst.peak, whole_run=True),)
    running = _most_running(case, pressed)
    if running is None:
        return Proposal(says, evidence)
    slots = max(1, round(running * (1 - GIVE_UP)))
    changes: dict[str, object] = {"max_num_seqs": slots}
    # Preemption is not simulated, so that no effect is claimed.
    return Proposal(says, evidence, changes, case.overrides(changes))


def _most_running(case: Case, pressed: Sequence[KvPressure]) -> int | None:
    """Return how many sequences a pressed replica ran at once at most, None without knobs.

    A limit far above what ever ran binds nothing, and three quarters of it would not either.
    """
    if case.knobs is None:
        return None
    lanes = {one.lane for one in pressed}
    seen = [lane.peak_running for lane in case.report.slots.lanes if lane.lane in lanes]
    limit = case.knobs.max_num_seqs
    return min(limit, max(seen, default=limit))


def _ceiling(pressed: Sequence[KvPressure]) -> str:
    """Say how much can be gained at most: what preempted requests compute a second time.

    Preemptions and requests are of the same replicas and the same time. A request may be preempted
    more than once. Worked example: 12 preemptions over 400 requests, at most 3 % computed twice.
    """
    counted = [one for one in pressed if one.preemptions is not None]
    if not counted:
        return "Preemptions were not counted, so that the ceiling of this is not known."
    preempted = sum(one.preemptions or 0 for one in counted)
    requests = sum(one.requests or 0 for one in counted)
    if not preempted:
        return "Nothing was preempted, so that nothing was computed twice yet."
    if not requests:
        return f"{preempted} preemptions, of requests that were not recorded: no ceiling is known."
    each = preempted / requests
    if each >= 1:
        return f"{each:.1f} preemptions for each request: much of the work was done again."
    ceiling = ": a small ceiling" if each < FEW else ""
    return f"At most {each:.1%} of the requests there were computed twice{ceiling}."


def slow_replica(case: Case) -> Proposal | str:
    """A replica that is slower than its peers at the same load, and the node of all such."""
    slow = [replica for replica in case.report.balance.replicas if replica.slow]
    if not slow:
        return "no replica is slower than its peers at equal load"
    worst = max(slow, key=lambda replica: replica.slowdown or 0.0)
    slowdown = worst.slowdown or 0.0
    node = _node_of(case, [replica.lane for replica in slow])
    place = f"node `{node}`, where all slow replicas are" if node else "its node"
    says = (
        f"`{worst.lane}` needs {slowdown:.2f} times its peers' time per token at equal load: check "
        f"clocks, temperature and neighbours of {place}, or leave the node out."
    )
    return Proposal(says, (case.shown("slowdown", slowdown, "x"),))


def _node_of(case: Case, slow: Sequence[str]) -> str | None:
    """Return the node that holds all slow replicas and no other, None where there is none."""
    if case.topology is None:
        return None
    nodes = {device.id: device.node for device in case.topology.devices}
    places = {
        lane.id: {nodes[device] for device in lane.devices if device in nodes}
        for lane in case.topology.replicas()
    }
    of_slow = set().union(*(places.get(lane, set()) for lane in slow))
    of_others = set().union(*(found for lane, found in places.items() if lane not in slow))
    return of_slow.pop() if len(of_slow) == 1 and not of_slow & of_others else None


def _more(case: Case) -> list[Mapping[str, object]]:
    assert case.knobs is not None
    slots = case.knobs.max_num_seqs
    options: list[Mapping[str, object]] = [{"max_num_seqs": slots * 3 // 2},
                                           {"max_num_seqs": slots * 2}]  # fmt: skip
    return options


RULES: Final = (
    Rule(
        name="concurrency", tier=3, variables="engine", check=concurrency,
        asks="Do requests queue in front of engines that could run more at once?",
        fires=f"a replica has more requests than slots at least {QUEUES:.0%} of the time, no KV "
        "pressure, and more slots are predicted to gain",
        risk="KV pressure and preemption when responses get longer; each response decodes slower.",
        verify="Tokens per second of the replicas rise, without preemptions.",
        falsifier="Tokens per second stay: the engine was bound by compute.",
    ),
    Rule(
        name="concurrent_samples", tier=3, variables="engine", check=concurrent_samples,
        asks="Does the limit of prompts per replica leave slots unused?",
        fires="fully_async, the limit binds before the staleness quota, less than "
        f"{ROOM:.0%} of the slots are in use without KV pressure, the trainer waits at least "
        f"{WAITS:.0%}, and more are predicted to gain",
        risk="KV pressure when responses get longer; more prompts span a sync.",
        verify="Slots in use rise, the trainer's wait falls.",
        falsifier="Slots stay as they are: the tail of each group, not the limit, empties them.",
    ),
    Rule(
        name="slow_replica", tier=3, variables="engine", check=slow_replica,
        asks="Does one replica hold up the others?",
        fires="its time per token at equal load is significantly above its peers'",
        risk="None: it is a defect, not a setting.",
        verify="The replica is as fast as its peers, or gone.",
        falsifier="It had the longer contexts, not the slower device.",
    ),
    Rule(
        name="kv_pressure", tier=3, variables="engine", check=kv_pressure,
        asks="Do engines run out of KV cache?",
        fires="a replica's cache is at its limit, or it preempts",
        risk="Fewer sequences at once lower throughput where there was no preemption.",
        verify="Preemptions stop; tokens per second do not fall.",
        falsifier="Tokens per second fall: preemption was cheaper than idle slots.",
    ),
)  # fmt: skip
