"""Who a request belongs to: trajectory, turn and attempt, and the lanes of replicas and workers."""

from __future__ import annotations

import asyncio
import warnings
from types import SimpleNamespace

import pytest
from verl_hooked import put_on, tagged

import rlinsight
from rlinsight.collectors.verl import actors, agent_loop, identity
from rlinsight.collectors.verl.agent_loop import output_uid, sample_uid, tagging
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.workers.rollout.llm_server as client_module
    from verl.workers.rollout.replica import TokenOutput

real_sleep = asyncio.sleep


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((agent_loop,), client_module)


@pytest.fixture(autouse=True)
def no_trajectory():
    """No trajectory of an earlier test is running."""
    yield identity.trajectory.set(None)
    identity.trajectory.set(None)
    identity.turn.set(None)


def test_the_identity_of_a_request_survives_the_way_to_the_server():
    known = identity.parse(tagged(2, "uid_sample_0_7/1", validate=True))
    assert known.request_id == "uid_sample_0_7/1#1"
    assert (known.sample_uid, known.attempt, known.validate) == ("uid_sample_0_7/1", 2, True)


class Servers:
    """The load balancer and the servers of a client of verl's."""

    def __init__(self, answers: list[str]) -> None:
        rollout_config = SimpleNamespace(name="vllm", response_length=4)
        self.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=rollout_config))
        self.answers, self.seen = answers, []
        self.generate_on_server = SimpleNamespace(remote=self._answer)

    async def _acquire_server(self, *_, **__):
        return "address", SimpleNamespace(generate=self.generate_on_server)

    def _release_server(self, *_, **__) -> None: ...

    async def _answer(self, request_id: str, **_):
        known = identity.parse(request_id)
        self.seen.append((known.request_id, known.attempt))
        await asyncio.sleep(0)
        extra = {"global_steps": 1}
        return TokenOutput(token_ids=[1], stop_reason=self.answers.pop(0), extra_fields=extra)

    async def ask(self) -> None:
        await self.generate("sticky", prompt_ids=[1], sampling_params={"max_tokens": 4})


class Client(Servers, client_module.FullyAsyncLLMServerClient):
    """verl's client of the asynchronous modes, which resumes after an abort."""


class PlainClient(Servers, client_module.LLMServerClient):
    """verl's client of the sync mode."""


def test_attempts_count_within_a_turn_and_turns_within_a_trajectory(monkeypatch, tmp_path):
    """The first answer is aborted once and resumed by verl, the second is not."""

    async def timeline() -> list:
        identity.trajectory.set(identity.Trajectory("g/0", "g", validate=False))
        client = Client(["aborted", "completed", "completed"])
        await client.ask()
        await client.ask()
        return client.seen

    monkeypatch.setattr(client_module.asyncio, "sleep", lambda _: real_sleep(0))
    with rlinsight.recording(tmp_path / "t"):
        assert asyncio.run(timeline()) == [("g/0#1", 1), ("g/0#1", 2), ("g/0#2", 1)]


def test_turns_that_run_at_once_do_not_mix(tmp_path):
    async def timeline() -> list:
        identity.trajectory.set(identity.Trajectory("g/0", "g", validate=False))
        client = Client(["completed"] * 3)
        await asyncio.gather(*(client.ask() for _ in range(3)))
        return client.seen

    with rlinsight.recording(tmp_path / "t"):
        assert asyncio.run(timeline()) == [("g/0#1", 1), ("g/0#2", 1), ("g/0#3", 1)]


def test_without_a_client_that_resumes_every_attempt_is_a_turn(tmp_path):
    async def timeline() -> list:
        identity.trajectory.set(identity.Trajectory("g/0", "g", validate=False))
        client = PlainClient(["completed", "completed"])
        await client.ask()
        await client.ask()
        return client.seen

    with rlinsight.recording(tmp_path / "t"):
        assert asyncio.run(timeline()) == [("g/0#1", 1), ("g/0#2", 1)]


def test_an_id_without_identity_names_itself():
    assert identity.parse("5f0c|x").request_id == "5f0c|x"
    assert identity.parse("5f0c").sample_uid is None
    assert identity.tag("5f0c") == "5f0c"


def test_a_suffix_that_verl_appends_for_disaggregated_prefill_changes_nothing():
    known = identity.parse(tagged(1, "g|odd/0", validate=None) + "_D")
    assert (known.sample_uid, known.validate) == ("g|odd/0", None)


def test_the_client_leaves_a_deterministic_id_alone(tmp_path):
    identity.turn.set(identity.Turn(identity.Trajectory("g/0", "g", validate=False), 1, 1))
    with rlinsight.recording(tmp_path / "t"):
        assert tagging(lambda _, request_id: request_id)(None, "det-3") == "det-3"
        fresh = tagging(lambda *_: "fresh")(None, "sticky")
    assert identity.parse(fresh).sample_uid == "g/0"
    assert tagging(lambda *_: "fresh")(None, "sticky") == "fresh"  # recording is off


def test_trajectories_of_a_group_are_numbered_where_verl_does_not():
    identity.siblings.set({})
    assert [sample_uid(g, None) for g in ("a", "a", "b", "a")] == ["a/0", "a/1", "b/0", "a/2"]
    assert sample_uid("a", 5) == "a/5"
    assert output_uid("a/5", 0) == "a/5"
    assert output_uid("a/5", 2) == "a/5.2"


@pytest.mark.parametrize(
    ("name", "lane"),
    [
        ("vllm_server_1_0", "replica1"),
        ("vllm_server_reward_1_0", "reward/replica1"),
        # Of several teachers each numbers its replicas from 0; their keys tell them apart.
        ("vllm_server_teacher_1_0", "teacher/replica1"),
        ("vllm_server_teacher_1_0_math", "teacher/math/replica1"),
        ("vllm_server_teacher_1_0_open_code", "teacher/open_code/replica1"),
        ("", "replica1"),
    ],
)
def test_a_reward_model_does_not_share_the_lane_of_a_policy_replica(name, lane):
    assert actors.replica_lane_id(1, name) == lane


def test_workers_are_told_apart_by_their_number():
    assert actors.worker_lane("agent_loop", "agent_loop_worker_3_9f2a71bc", 11) == "agent_loop/3"
    assert actors.worker_lane("reward", "somebody", 11) == "reward/pid11"
