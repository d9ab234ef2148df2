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
    todo, overrides = _more_at_once(case)
    says = (
        f"Trajectories spend {share:.0%} of their time in tools or environments, while replicas "
        f"are at most {fullest:.0%} full: {todo}"
    )
    evidence = (
        case.shown("tools, of the trajectories' time", share),
        case.shown("slots in use on the fullest replica", fullest),
    )
    return Proposal(says, evidence, {}, overrides)


def _filled(lane: LaneSlots) -> float | None:
    """Return the slots in use; of a replica that sleeps while its devices train, while it does not.

    Worked example: a hybrid replica that is full for a fifth of the window has no room, though only
    a fifth of its slots are in use over the window.
    """
    if lane.utilization is None or lane.engine_kind == "standalone":
        return lane.utilization
    return lane.utilization / lane.generating_ratio if lane.generating_ratio else 0.0


def _more_at_once(case: Case) -> tuple[str, tuple[str, ...]]:
    """Return what to do, and the overrides that do it, where a setting is what limits.

    fully_async starts prompts up to a limit of each replica and up to the staleness quota of all,
    whichever is less. The other modes start all trajectories of a batch at once, so that only the
    tools themselves can run more at once: those that run in the agent workers, with more of these.
    """
    knobs = case.knobs
    if case.mode() == "fully_async":
        if knobs is None:
            return "raise the number of trajectories at once, not that of devices.", ()
        if knobs.standalone_replicas * knobs.concurrent_samples >= knobs.max_required_samples:
            return (
                f"not devices are short. The staleness quota ({knobs.max_required_samples} prompts)"
                " is what limits the trajectories at once: make the tools faster, or raise it.",
                (),
            )
        more = override("fully_async", "concurrent_samples", 2 * knobs.concurrent_samples)
        return (
            "raise the number of trajectories at once, not that of devices; then make the tools "
            "faster.",
            (more,) if more is not None else (),
        )
    workers = setting(case.config, _WORKERS)
    return (
        "not devices are short. All trajectories of a batch run at once already: more agent "
        "workers help tools that run in them; make others faster.",
        (f"{_WORKERS}={2 * workers}",) if isinstance(workers, int) else (),
    )


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
