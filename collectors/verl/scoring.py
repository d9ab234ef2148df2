"""Time of a trajectory outside generation: its tools or environment, and its reward.

Spans `tool` and `reward` (waiting for the score; attribute `side` client) on lane
`agent_loop/<worker>`, `reward` (computing it; `side` worker) on `reward/<worker>`. A worker
runs many trajectories at once, so spans overlap on these lanes.
"""

from __future__ import annotations

import os
from typing import Any

from rlinsight.collectors.verl import identity
from rlinsight.collectors.verl.actors import actor_name, worker_lane
from rlinsight.collectors.verl.hooks import Call, Hook, span_end
from rlinsight.trace.topology import Lane, LaneRole

_LOOP = "verl.experimental.agent_loop.agent_loop"


def _begin(call: Call, activity: str, lane: str, **attrs: Any) -> None:
    current = identity.trajectory.get()
    if current is not None and current.sample_uid is not None:
        attrs["sample_uid"] = current.sample_uid
    call.state = call.rec.begin(activity, lane=lane, start_ns=call.start_ns, attrs=attrs)


def _own_lane(call: Call, prefix: str, role: LaneRole) -> str:
    lane, pid = worker_lane(prefix, actor_name(), os.getpid()), os.getpid()
    if call.rec.lane != lane:  # the first time in this process
        call.rec.lane = lane
        call.rec.declare_lane(Lane(lane, role=role, node=call.rec.node, pid=pid))
    return lane


def tool_begins(call: Call) -> None:
    """A tool runs. Only its name is kept, and that only if it exists: a model makes names up."""
    name = call.arg(0, "tool_call").name
    known = getattr(call.arg(2, "agent_data"), "_active_tools", call.obj.tools)
    tool = name if name in known else "unknown"
    _begin(call, "tool", _own_lane(call, "agent_loop", "other"), tool=tool)


def score_awaited(call: Call) -> None:
    """The agent loop sends a trajectory to a reward worker, unless it has its reward already."""
    outputs = call.arg(0, "outputs")
    if call.obj.reward_loop_worker_handles is not None and outputs[-1].reward_score is None:
        _begin(call, "reward", _own_lane(call, "agent_loop", "other"), side="client")


def score_computed(call: Call) -> None:
    """A reward worker computes a score."""
    _begin(call, "reward", _own_lane(call, "reward", "reward"), side="worker")


HOOKS = (
    Hook(
        name="agent_loop.tool",
        module="verl.experimental.agent_loop.tool_agent_loop",
        target="ToolAgentLoop._call_tool",
        records="spans tool",
        enter=tool_begins,
        exit=span_end,
        needs=("tool_call", "agent_data"),
    ),
    Hook(
        name="agent_loop.score",
        module=_LOOP,
        target="AgentLoopWorker._compute_score",
        records="spans reward of the agent loop (side client)",
        enter=score_awaited,
        exit=span_end,
        needs=("outputs",),
    ),
    Hook(
        name="reward.score",
        module="verl.experimental.reward_loop.reward_loop",
        target="RewardLoopWorker.compute_score",
        records="spans reward of the reward worker (side worker)",
        enter=score_computed,
        exit=span_end,
    ),
)
