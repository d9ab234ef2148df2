"""Tier 1: how many devices train and how many generate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from rlinsight.analyzers.advise.case import NOT_CALIBRATED, Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.advise.rules.tools import TOOLS, tool_share
from rlinsight.analyzers.config import setting
from rlinsight.analyzers.parallel import data_parallel_ranks

IDLE: Final = 0.15
BUSY: Final = 0.10
_WAITS: Final = ("wait_samples", "long_tail", "poll_interval")


def fewer_rollouters(case: Case) -> Proposal | str:
    """Whole replicas are given up, or their devices given to the trainer, whichever gains more.

    The trainer only takes devices that its batches still divide by. By the wall clock nothing is
    given up: devices only move.
    """
    if (idle := case.idle("rollouter")) is None:
        return "no devices of their own generate"
    waits = case.bubble("trainer", *_WAITS)
    if idle < IDLE or waits > BUSY:
        return f"the rollouters idle {idle:.1%} and the trainer waits {waits:.1%}"
    if case.knobs is None:
        return NOT_CALIBRATED
    effect = case.best(_fewer(case))
    if effect is None:
        objective = "the wall-clock throughput" if case.wall_clock else "throughput per device"
        return f"no smaller number of replicas is predicted to raise {objective}"
    replicas = case.knobs.standalone_replicas
    moved = "; the trainer takes their devices" if "trainer_devices" in effect.changes else ""
    says = (
        f"The rollouters idle {idle:.0%} of their time and the trainer hardly waits: "
        f"{effect.changes['rollout_replicas']} instead of {replicas} replicas are enough{moved}."
    )
    evidence = (
        case.shown("rollouter idle", idle, owner="rollouter", causes=_causes(case, "rollouter")),
        case.shown("trainer waits for samples", waits),
    )
    return case.propose(says, evidence, effect)


def more_rollouters(case: Case) -> Proposal | str:
    """Replicas are added, or devices moved over from the trainer, whichever gains more."""
    if (idle := case.idle("rollouter")) is None:
        return "no devices of their own generate"
    waits = case.bubble("trainer", *_WAITS)
    if (tools := tool_share(case)) is not None and tools >= TOOLS:
        return f"tools take {tools:.0%} of the trajectories' time: devices would wait for them too"
    if waits < IDLE or idle > BUSY:
        return f"the trainer waits {waits:.1%} and the rollouters idle {idle:.1%}"
    if case.knobs is None:
        return NOT_CALIBRATED
    effect = case.best(_more(case))
    if effect is None:
        return "no other split of devices is predicted to gain"
    says = (
        f"The trainer waits {waits:.0%} of its time for rollouters that idle {idle:.0%}: more of "
        "the devices should generate."
    )
    evidence = (
        case.shown("trainer waits for samples", waits, owner="trainer", causes=_WAITS),
        case.shown("rollouter idle", idle),
    )
    return case.propose(says, evidence, effect)


def _below(replicas: int) -> list[int]:
    """All smaller numbers of a few replicas, eighths of many."""
    if replicas <= 8:
        return list(range(1, replicas))
    return sorted({replicas * part // 8 for part in range(3, 8)})


def _fewer(case: Case) -> list[Mapping[str, object]]:
    assert case.knobs is not None
    replicas, per = case.knobs.standalone_replicas, case.knobs.tensor_parallel
    options: list[Mapping[str, object]] = []
    for left in _below(replicas):
        if not case.wall_clock:
            options.append({"rollout_replicas": left})
        more = case.knobs.trainer_devices + (replicas - left) * per
        if divides(case, more):
            options.append({"rollout_replicas": left, "trainer_devices": more})
    return options


def divides(case: Case, devices: int) -> bool:
    """Whether an update's sequences divide by the data-parallel ranks of so many devices."""
    assert case.knobs is not None
    ranks = data_parallel_ranks(partial(setting, case.config), devices)
    return ranks is not None and case.knobs.update_prompts * case.knobs.group_size % ranks == 0


def _more(case: Case) -> list[Mapping[str, object]]:
    assert case.knobs is not None
    replicas, per = case.knobs.standalone_replicas, case.knobs.tensor_parallel
    options: list[Mapping[str, object]] = []
    for more in sorted({1, max(1, replicas // 4), max(1, replicas // 2), replicas}):
        options.append({"rollout_replicas": replicas + more})
        left = case.knobs.trainer_devices - more * per
        if left >= per and divides(case, left):
            options.append({"rollout_replicas": replicas + more, "trainer_devices": left})
    return options


def _causes(case: Case, owner: str) -> tuple[str, ...]:
    return tuple(total.cause for total in case.report.bubbles.totals if total.owner == owner)


RULES: Final = (
    Rule(
        name="fewer_rollouters", tier=1, variables="resources", check=fewer_rollouters,
        asks="Do rollout devices idle while the trainer is busy?",
        fires=f"rollouters idle at least {IDLE:.0%}, the trainer waits at most {BUSY:.0%}, and a "
        "smaller number of replicas, given up or given to the trainer, is predicted to gain by the "
        "objective",
        risk="Longer responses later in training may need the replicas again.",
        verify="Throughput rises by about the predicted share; the trainer's wait stays low.",
        falsifier="The trainer starts to wait: the idle time was uneven, not spare.",
    ),
    Rule(
        name="more_rollouters", tier=1, variables="resources", check=more_rollouters,
        asks="Does the trainer wait while all rollout devices are busy?",
        fires=f"the trainer waits at least {IDLE:.0%}, rollouters idle at most {BUSY:.0%}, tools "
        f"take less than {TOOLS:.0%} of the trajectories' time, and another split is predicted to "
        "gain by the objective",
        risk="Fewer trainer devices leave less memory for each: the token budget may have to fall.",
        verify="The trainer's wait falls; throughput rises by about the predicted share.",
        falsifier="The wait stays: it is not the number of replicas but a tail or a quota.",
    ),
)  # fmt: skip
