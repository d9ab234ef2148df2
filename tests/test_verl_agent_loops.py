"""Trajectories of verl's agent loops: samples, rewards and tools."""

from __future__ import annotations

import asyncio
import os
import warnings
from types import SimpleNamespace

import pytest
from live_rows import rows
from verl_hooked import fates, put_on

import rlinsight
from rlinsight.collectors.verl import agent_loop, identity, scoring
from rlinsight.collectors.verl.hooks import Call
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.experimental.agent_loop.agent_loop as loop_module
    import verl.experimental.agent_loop.tool_agent_loop as tool_loop_module


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((agent_loop,), loop_module, tool_loop_module)


def output(reward: float | None = 1.5):
    return loop_module.AgentLoopOutput(
        prompt_ids=[1, 2, 3],
        response_ids=[4, 5],
        response_mask=[1, 1],
        reward_score=reward,
        num_turns=2,
        metrics=loop_module.AgentLoopMetrics(),
        extra_fields={"min_global_steps": 2, "max_global_steps": 3},
    )


def complete(rec, current: identity.Trajectory, given, *, validate: bool) -> None:
    token = identity.trajectory.set(current)
    call = Call(rec, None, (given, validate), {}, start_ns=1)
    call.end_ns = 50
    agent_loop.trajectory_complete(call)
    identity.trajectory.reset(token)


def test_a_complete_trajectory_is_a_sample_without_a_fate(tmp_path):
    with rlinsight.recording(tmp_path / "t") as rec:
        complete(rec, identity.Trajectory("g/1", "g", False), output(), validate=False)
        complete(rec, identity.Trajectory("h/0", "h", False), [output(), output()], validate=False)
        complete(rec, identity.Trajectory("v/0", "v", True), output(), validate=True)

    found = rows(tmp_path / "t", "samples")
    assert [row["sample_uid"] for row in found] == ["g/1", "h/0", "h/0.1"]
    first = found[0]
    assert (first["group_uid"], first["produced_ns"], first["fate"]) == ("g", 50, None)
    assert (first["prompt_tokens"], first["response_tokens"], first["reward"]) == (3, 2, 1.5)
    assert (first["version_start"], first["version_end"]) == (2, 3)


def test_a_trajectory_that_raises_is_an_aborted_sample(tmp_path):
    worker = object.__new__(loop_module.AgentLoopWorker)

    async def timeline() -> None:
        identity.siblings.set({})
        with pytest.raises(AssertionError, match="not registered"):
            await worker._run_agent_loop(
                {},
                {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False},
                agent_name="nobody",
                uid="g",
            )

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())
    assert fates(tmp_path / "t") == {"g/0": "aborted"}


def test_waiting_for_a_reward_is_a_span_only_where_one_is_asked_for(tmp_path):
    with rlinsight.recording(tmp_path / "t") as rec:
        for handles, given in (
            ([object()], output(None)),
            ([object()], output()),
            (None, output(None)),
        ):
            worker = SimpleNamespace(reward_loop_worker_handles=handles)
            call = Call(rec, worker, ([given], {}), {}, start_ns=10)
            scoring.score_awaited(call)
            call.end_ns = 30
            scoring.span_end(call)

    (span,) = rows(tmp_path / "t", "spans")
    assert (span["activity"], span["start_ns"], span["end_ns"]) == ("reward", 10, 30)
    assert dict(span["attrs"])["side"] == "client"


def test_a_tool_is_a_span_with_its_name_and_nothing_of_its_arguments(tmp_path):
    schema = tool_loop_module.FunctionTool("add", lambda a, b: a + b, tool_schema=None)
    loop = object.__new__(tool_loop_module.ToolAgentLoop)
    loop.tools, loop.max_tool_response_length = {"add": schema}, 100
    data = SimpleNamespace(_active_tools=loop.tools)

    async def timeline() -> None:
        identity.trajectory.set(identity.Trajectory("g/1", "g", validate=False))
        for name in ("add", "the secret is 42"):
            asked = tool_loop_module.FunctionCall(name=name, arguments='{"a": 20, "b": 22}')
            await loop._call_tool(asked, {}, data)

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    spans = rows(tmp_path / "t", "spans")
    assert {(r["activity"], r["lane"]) for r in spans} == {("tool", f"agent_loop/pid{os.getpid()}")}
    assert [dict(r["attrs"]) for r in spans] == [
        {"tool": "add", "sample_uid": "g/1"},
        {"tool": "unknown", "sample_uid": "g/1"},
    ]
