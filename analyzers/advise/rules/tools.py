"""Tier 3: rollouts that wait for tools or environments, which devices cannot speed up."""

from __future__ import annotations

from typing import Final

from rlinsight.analyzers.advise.case import Case
from rlinsight.analyzers.advise.finding import Proposal, Rule
from rlinsight.analyzers.config import setting
from rlinsight.analyzers.engines.slots import LaneSlots
from rlinsight.analyzers.simulate.overrides import override

#: From this share of the trajectories' time on, tools are what takes long.
TOOLS: Final = 0.40
#: Replicas fuller than this have no room for what other trajectories would send.
FULL: Final = 0.50
_WORKERS: Final = "actor_rollout_ref.rollout.agent.num_workers"
_PARALLEL: Final = "actor_rollout_ref.rollout.multi_turn.max_parallel_calls"


def tool_share(case: Case) -> float | None:
    """Return the share of trajectories' time that tools take, None where none was recorded.

    Tool-seconds / (tool-seconds + request-seconds of generation), both summed over trajectories
    and of the report's window.
    """
    ran = [a for a in case.report.activities if a.activity == "tool"]
    if not ran:
        return None
    tools = sum(one.span_seconds_in_window for one in ran)
    running = sum(lane.mean_running for lane in case.report.slots.lanes)
    window = case.report.window
    generating = running * (window.end_ns - window.start_ns) / 1e9
    return tools / (tools + generating) if tools + generating else None


def tool_bound(case: Case) -> Proposal | str:
    """More trajectories at once fill the replicas while others wait for their tools."""
    share = tool_share(case)
    if share is None:
        return "no tools were recorded"
    if share < TOOLS:
        return f"tools take {share:.1%} of the trajectories' time"
    filled = [_filled(lane) for lane in case.report.slots.lanes]
    known = [one for one in filled if one is not None]
    if not known:
        return f"tools take {share:.1%}, but how full the replicas are is not known"
    fullest = max(known)
    if fullest >= FULL:
        return f"tools take {share:.1%}, but a replica is {fullest:.0%} full: it has no room"
    says = (
        f"Trajectories spend {share:.0%} of their time in tools or environments, while replicas "
        f"are at most {fullest:.0%} full: raise the number of trajectories at once, not that of "
        "devices; then make the tools faster."
    )
    evidence = (
        case.shown("tools, of the trajectories' time", share),
        case.shown("slots in use on the fullest replica", fullest),
    )
    return Proposal(says, evidence, {}, _overrides(case))


def _filled(lane: LaneSlots) -> float | None:
    """Return the slots in use; of a replica that sleeps while its devices train, while it does not.

    Worked example: a hybrid replica that is full for a fifth of the window has no room, though only
    a fifth of its slots are in use over the window.
    """
    if lane.utilization is None or lane.engine_kind == "standalone":
        return lane.utilization
    return lane.utilization / lane.generating_ratio if lane.generating_ratio else 0.0


def _overrides(case: Case) -> tuple[str, ...]:
    """Twice the trajectories per replica in fully_async; agent workers and calls elsewhere."""
    if case.knobs is not None and case.knobs.mode == "fully_async":
        more = override("fully_async", "concurrent_samples", 2 * case.knobs.concurrent_samples)
        return (more,) if more is not None else ()
    workers = setting(case.config, _WORKERS)
    calls = setting(case.config, _PARALLEL)
    found = [(_WORKERS, workers), (_PARALLEL, calls)]
    return tuple(f"{key}={2 * value}" for key, value in found if isinstance(value, int))


RULES: Final = (
    Rule(
        name="tool_bound", tier=3, variables="engine", check=tool_bound,
        asks="Do trajectories wait for tools or environments instead of devices?",
        fires=f"tools take at least {TOOLS:.0%} of the trajectories' time and no replica is "
        f"{FULL:.0%} full",
        risk="The environments must bear twice the calls; in fully_async the quota still limits.",
        verify="Slots fill and the trainer's wait falls, with the same devices.",
        falsifier="The tools get slower by as much: their backend is what is full.",
    ),
)  # fmt: skip
