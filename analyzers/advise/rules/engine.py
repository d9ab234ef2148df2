"""Tier 3: the rollout engines: concurrency, memory pressure, slow replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Proposal, Rule

QUEUES: Final = 0.30
#: A replica under pressure gives up this share of its slots.
GIVE_UP: Final = 0.25


def concurrency(case: Case) -> Proposal | str:
    """Engines that run at their limit of sequences with memory to spare get more."""
    queued = [lane for lane in case.report.slots.lanes if lane.over_capacity_ratio is not None]
    if not queued or case.knobs is None:
        return "the slots of the replicas are not known"
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


def kv_pressure(case: Case) -> Proposal | str:
    """Engines that preempt recompute what they had: fewer at once."""
    pressed = case.report.balance.kv_pressure
    if not pressed:
        return "no replica is short of KV cache"
    worst = max(pressed, key=lambda replica: replica.preemptions or 0)
    says = (
        f"`{worst.lane}` fills {worst.peak:.0%} of its KV cache"
        f"{f' and preempted {worst.preemptions} requests' if worst.preemptions else ''}: give it "
        "more memory, or fewer sequences at once. The ceiling of this is small."
    )
    evidence = (case.shown("KV cache, peak", worst.peak),)
    if case.knobs is None:
        return Proposal(says, evidence)
    slots = max(1, round(case.knobs.max_num_seqs * (1 - GIVE_UP)))
    changes: dict[str, object] = {"max_num_seqs": slots}
    # Preemption is not simulated, so that no effect is claimed.
    return Proposal(says, evidence, changes, case.overrides(changes))


def slow_replica(case: Case) -> Proposal | str:
    """A replica that is slower than its peers at the same load."""
    slow = [replica for replica in case.report.balance.replicas if replica.slow]
    if not slow:
        return "no replica is slower than its peers at equal load"
    worst = max(slow, key=lambda replica: replica.slowdown or 0.0)
    slowdown = worst.slowdown or 0.0
    says = (
        f"`{worst.lane}` needs {slowdown:.2f} times its peers' time per token at equal load: check "
        "clocks, temperature and neighbours of its node, or leave the node out."
    )
    return Proposal(says, (case.shown("slowdown", slowdown, "x"),))


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
