"""Agent loops: which trajectory makes which request, and its row of table `samples`.

Runs in the agent-loop workers. A trajectory's `sample_uid` is `<group uid>/<session>`, the
session counting the group's trajectories from 0, with `.1`, `.2`, … for further outputs of
one session. A training trajectory that is complete, reward included, writes a `samples` row
without a fate: who trains or drops it writes the fate, and a sample that nobody gave a fate
was never consumed. Validation trajectories write none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import ModuleType
from typing import Any

from rlinsight.collectors.verl import identity, scoring, wrap
from rlinsight.collectors.verl.hooks import FULLY_ASYNC, V1, Call, Hook, HookSkipped

_LOOP = "verl.experimental.agent_loop.agent_loop"
_LOOP_V1 = "verl.trainer.ppo.v1.agent_loop_tq"
_CLIENT = "verl.workers.rollout.llm_server"


# -- identity ------------------------------------------------------------------------------


def batch_begins(_: Call) -> None:
    """A batch of groups is about to start its trajectories, each in a task of its own."""
    identity.siblings.set({})


def trajectory_begins(call: Call) -> None:
    """Name the trajectory for everything this task will do."""
    info = call.arg(1, "trajectory") or {}
    uid, validate = call.kwargs.get("uid"), bool(info.get("validate"))
    group = None if uid is None else str(uid)
    sample = None if group is None else sample_uid(group, call.kwargs.get("session_id"))
    identity.trajectory.set(identity.Trajectory(sample, group, validate))


def sample_uid(group: str, session: Any) -> str:
    """Return the id of the group's trajectory `session`; without a number, of its next one."""
    started = identity.siblings.get()
    if session is None:
        session = 0 if started is None else started.get(group, 0)
        if started is not None:
            started[group] = session + 1
    return f"{group}/{session}"


def trajectory_ends(call: Call) -> None:
    """A trajectory that raised will never be a sample: its fate is `aborted`."""
    current = identity.trajectory.get()
    if call.error is None or current is None or current.sample_uid is None or current.validate:
        return
    call.rec.sample(sample_uid=current.sample_uid, group_uid=current.group_uid, fate="aborted")


def turn_begins(call: Call) -> None:
    """A logical request begins, of one or more attempts."""
    call.state = identity.begin_turn()


def attempt_begins(call: Call) -> None:
    """One attempt goes to some replica."""
    call.state = identity.begin_attempt()


def turn_ends(call: Call) -> None:
    """The logical request that `enter` began has its whole answer."""
    if call.state is not None:
        identity.turn.reset(call.state)


def install_request_id(module: ModuleType, hook: Hook) -> None:
    """Let the client put the trajectory in front of the id it makes for the engine."""
    owner, name = wrap.locate(module, hook.target)
    original = getattr(owner, name)
    if not hasattr(original, "__rlinsight_hooks__"):
        setattr(owner, name, tagging(original))
    elif hook.name not in original.__rlinsight_hooks__:
        raise HookSkipped(f"`{hook.target}` is hooked otherwise")


def tagging(original: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    """Return `LLMServerClient._vllm_request_id` with the trajectory's identity in its result.

    An id that verl passes through unchanged (full determinism) is left as it is.
    """

    def wrapper(client: Any, request_id: str) -> str:
        engine_id = original(client, request_id)
        if engine_id == request_id or wrap.recorder() is None:
            return engine_id
        return identity.tag(engine_id)

    update_wrapper(wrapper, original)
    wrapper.__rlinsight_hooks__ = ("agent_loop.request_id",)  # type: ignore[attr-defined]
    return wrapper


# -- samples -------------------------------------------------------------------------------


def trajectory_complete(call: Call) -> None:
    """The trajectory has its reward and was handed over (v1) or is about to be."""
    if call.error is not None or call.arg(1, "validate"):
        return
    current = identity.trajectory.get()
    if current is None or current.sample_uid is None:
        return
    given = call.arg(0, "output")
    for index, output in enumerate(given if isinstance(given, list) else [given]):
        call.rec.sample(
            sample_uid=output_uid(current.sample_uid, index),
            group_uid=current.group_uid,
            produced_ns=call.end_ns,
            **output_columns(output),
        )


def output_uid(first: str, index: int) -> str:
    """Return the id of a trajectory's further output `index`, given that of its first."""
    return first if index == 0 else f"{first}.{index}"


def output_columns(output: Any) -> dict[str, Any]:
    """Return what a verl `AgentLoopOutput` tells about a sample."""
    extra = output.extra_fields
    reward = output.reward_score
    return {
        "prompt_tokens": len(output.prompt_ids),
        "response_tokens": len(output.response_ids),
        "version_start": extra.get("min_global_steps"),
        "version_end": extra.get("max_global_steps"),
        "reward": None if reward is None else float(reward),
    }


HOOKS = (
    Hook(
        name="agent_loop.batch",
        module=_LOOP,
        target="AgentLoopWorker.generate_sequences",
        records="nothing: numbers the trajectories of a group",
        enter=batch_begins,
        modes=FULLY_ASYNC,
    ),
    Hook(
        name="agent_loop.trajectory",
        module=_LOOP,
        target="AgentLoopWorker._run_agent_loop",
        records="requests.sample_uid and validate; samples with fate aborted",
        enter=trajectory_begins,
        exit=trajectory_ends,
        needs=("trajectory",),
    ),
    Hook(
        name="agent_loop.turn",
        module=_CLIENT,
        target="FullyAsyncLLMServerClient.generate",
        records="requests.request_id: the attempts of one logical request",
        enter=turn_begins,
        exit=turn_ends,
    ),
    Hook(
        name="agent_loop.attempt",
        module=_CLIENT,
        target="LLMServerClient.generate",
        records="requests.attempt",
        enter=attempt_begins,
        exit=turn_ends,
    ),
    Hook(
        name="agent_loop.request_id",
        module=_CLIENT,
        target="LLMServerClient._vllm_request_id",
        records="nothing: carries the identity to the server",
        install=install_request_id,
    ),
    Hook(
        name="agent_loop.sample",
        module=_LOOP,
        target="AgentLoopWorker._agent_loop_postprocess",
        records="samples: produced_ns, tokens, versions, reward",
        exit=trajectory_complete,
        modes=FULLY_ASYNC,
        needs=("output", "validate"),
    ),
    Hook(
        name="agent_loop.sample_v1",
        module=_LOOP_V1,
        target="AgentLoopWorkerTQ._agent_loop_postprocess",
        records="samples: produced_ns, tokens, versions, reward",
        exit=trajectory_complete,
        modes=V1,
        needs=("output", "validate"),
    ),
    *scoring.HOOKS,
)
