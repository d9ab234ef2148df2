"""Samples between rollout and trainer: verl's own queue, rollouter and buffer, hooked."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import rlinsight
from rlinsight.collectors.verl import (
    agent_loop,
    identity,
    message_queue,
    replay,
    rollouter,
    scoring,
    switches,
    wrap,
)
from rlinsight.collectors.verl.hooks import Call
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.cloudpickle as cloudpickle
    import verl.experimental.agent_loop.agent_loop as loop_module
    import verl.experimental.agent_loop.tool_agent_loop as tool_loop_module
    import verl.experimental.fully_async_policy.fully_async_rollouter as rollouter_module
    import verl.experimental.fully_async_policy.message_queue as queue_module
    import verl.trainer.ppo.v1.replay_buffer as replay_module
    import verl.trainer.ppo.v1.trainer_colocate_async as colocate_module
    import verl.trainer.ppo.v1.trainer_separate_async as separate_module
    from verl.experimental.fully_async_policy.detach_utils import RolloutSample

MODULES = {
    module.__name__: module
    for module in (
        loop_module,
        tool_loop_module,
        rollouter_module,
        queue_module,
        replay_module,
        colocate_module,
        separate_module,
    )
}


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    for table in (message_queue, rollouter, replay, switches, agent_loop):
        for hook in table.HOOKS:
            if hook.module in MODULES:
                wrap.apply(MODULES[hook.module], hook)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Each test is a run of its own."""
    monkeypatch.setattr(rollouter, "_pauses", rollouter.Pauses())


def rows(folder: Path, table: str) -> list[dict]:
    found: list[dict] = []
    for path in sorted((folder / "live").glob(f"{table}-*.arrows")):
        with pa.ipc.open_stream(str(path)) as stream:
            found += [row for batch in stream for row in batch.to_pylist()]
    return found


def counter(folder: Path, lane: str, name: str) -> list[float]:
    found = [r for r in rows(folder, "counters") if (r["lane"], r["name"]) == (lane, name)]
    return [row["value"] for row in found]


def fates(folder: Path) -> dict[str, str]:
    return {row["sample_uid"]: row["fate"] for row in rows(folder, "samples")}


# -- the message queue ---------------------------------------------------------------------


def config(n: int = 2) -> SimpleNamespace:
    return SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(n=n)))


def group(number: int, payload: object = b"\x00" * 100_000) -> bytes:
    """A pickled group as the rollouter sends it, with something big in front of its id."""
    status = {"count/total_generated_samples": number, "static/max_queue_size": 4}
    sample = RolloutSample(payload, f"sample_0_{number}", epoch=0, rollout_status=status)
    return cloudpickle.dumps(sample)


def make_queue(size: int):
    return wrap.actor_class(queue_module.MessageQueue)(config(), size)


def test_the_group_is_read_from_the_pickle_without_unpickling_it():
    assert message_queue.group_uid(group(17)) == "uid_sample_0_17"
    assert message_queue.group_uid(cloudpickle.dumps({"x": 1})) is None
    assert message_queue.group_uid(None) is None


def test_every_put_and_get_is_counted_and_what_nobody_got_is_unconsumed(tmp_path):
    async def timeline() -> None:
        queue = make_queue(size=8)
        for number in (1, 2, 3):
            await queue.put_sample(group(number))
        sample, left = await queue.get_sample()
        assert (cloudpickle.loads(sample).sample_id, left) == ("sample_0_1", 2)
        await queue.put_sample(None)  # the end signal
        await queue.clear_queue()

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    folder = tmp_path / "t"
    assert counter(folder, "message_queue", "queue_depth") == [1, 2, 3, 2, 3, 0]
    assert counter(folder, "message_queue", "queue_produced") == [1, 2, 3, 4]
    assert counter(folder, "message_queue", "queue_consumed") == [0, 1]
    lost = ["uid_sample_0_2/0", "uid_sample_0_2/1", "uid_sample_0_3/0", "uid_sample_0_3/1"]
    assert fates(folder) == dict.fromkeys(lost, "unconsumed")


def test_a_full_queue_drops_its_oldest_group(tmp_path):
    async def timeline() -> None:
        queue = make_queue(size=2)
        for number in (1, 2, 3):
            await queue.put_sample(group(number))
        sample, _ = await queue.get_sample()
        assert cloudpickle.loads(sample).sample_id == "sample_0_2"

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    folder = tmp_path / "t"
    assert counter(folder, "message_queue", "queue_dropped") == [0, 1]
    assert fates(folder) == dict.fromkeys(["uid_sample_0_1/0", "uid_sample_0_1/1"], "dropped_stale")


def test_a_get_that_waits_is_served_in_order(tmp_path):
    async def timeline() -> None:
        queue = make_queue(size=4)
        getting = asyncio.create_task(queue.get_sample())
        await asyncio.sleep(0)
        await queue.put_sample(group(1))
        await queue.put_sample(group(2))
        await getting
        await queue.clear_queue()

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())
    assert set(fates(tmp_path / "t")) == {"uid_sample_0_2/0", "uid_sample_0_2/1"}


# -- the rollouter's pauses ----------------------------------------------------------------


class Actor:
    """A real queue in this process behind the call syntax of a Ray actor handle.

    `get_queue_size` answers only while `answers` is set.
    """

    def __init__(self, queue) -> None:
        self.queue = queue
        self.answers = asyncio.Event()
        self.answers.set()

    def __getattr__(self, method: str) -> SimpleNamespace:
        def remote(*args, **kwargs) -> SimpleNamespace:
            done: Future = Future()

            async def call() -> None:
                if method == "get_queue_size":
                    await self.answers.wait()
                done.set_result(await getattr(self.queue, method)(*args, **kwargs))

            task = asyncio.create_task(call())
            return SimpleNamespace(future=lambda: done, task=task)

        return SimpleNamespace(remote=remote)


@pytest.fixture
def processor():
    """A real rollouter whose generation is answered by hand; quota 2 groups, queue 2."""
    made = object.__new__(wrap.actor_class(rollouter_module.FullyAsyncRollouter))
    made.running, made.paused = True, False
    made.active_tasks, made.pending_queue = set(), asyncio.Queue()
    made.staleness_samples, made.max_required_samples = 0, 2
    made.max_queue_size, made.max_concurrent_samples = 2, 4
    made.required_samples, made.staleness_threshold = 1, 1.0
    made.total_generated_samples = made.dropped_stale_samples = made.processed_sample_count = 0
    made._step_generated_samples, made._completed_steps = 0, 1
    made._step_samples_history, made._STEP_HISTORY_SIZE = [], 10
    made.idle_start_time = made.step_start_time = time.time()
    made._active_count_history = [(time.time(), 0, 0)]
    made._init_async_objects()
    made.message_queue_client = queue_module.MessageQueueClient(Actor(make_queue(size=8)))
    generated = asyncio.Event()

    async def generate(batch):
        await generated.wait()
        return batch

    made.async_rollout_manager = SimpleNamespace(
        generate_sequences_single=generate, generated=generated
    )
    return made


class Batch(list):
    """What the rollouter touches of a group of prompts."""

    def __init__(self) -> None:
        super().__init__((0, 1))
        self.non_tensor_batch: dict = {}


async def finish_and_train(made, groups: int) -> None:
    """All running groups finish, and the trainer takes them from the queue."""
    made.async_rollout_manager.generated.set()
    await settle()
    made.async_rollout_manager.generated.clear()
    for _ in range(groups):
        await made.message_queue_client.get_sample()


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def run_processor(made, groups: int) -> asyncio.Task:
    for number in range(groups):
        made.pending_queue.put_nowait(RolloutSample(Batch(), f"sample_0_{number}", 0, {}))
    task = asyncio.create_task(made._processor_worker())
    await settle()
    return task


async def stop(task: asyncio.Task) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_quota_pauses_and_a_parameter_sync_resumes(processor, tmp_path):
    async def timeline() -> None:
        task = await run_processor(processor, groups=3)  # the third meets the quota of 2
        assert processor.paused
        await finish_and_train(processor, groups=2)
        await processor.reset_staleness()
        await settle()
        await stop(task)

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    (span,) = [r for r in rows(tmp_path / "t", "spans") if r["end_ns"] is not None]
    attrs = dict(span["attrs"])
    assert (span["activity"], span["lane"]) == ("paused", "rollouter")
    assert (attrs["reason"], attrs["resumed_by"]) == ("staleness_quota", "weight_sync")
    assert (attrs["staleness_samples"], attrs["max_required_samples"]) == ("2", "2")
    markers = [(r["kind"], r["reason"]) for r in rows(tmp_path / "t", "markers")]
    assert markers == [("pause", "staleness_quota"), ("resume", "weight_sync")]
    assert counter(tmp_path / "t", "rollouter", "staleness_samples")[-1] == 1


def test_a_full_queue_is_its_own_reason(processor, tmp_path):
    async def timeline() -> None:
        for number in range(2):
            await processor.message_queue_client.put_sample(group(number))
        task = await run_processor(processor, groups=1)
        await stop(task)

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    (marker,) = rows(tmp_path / "t", "markers")
    assert (marker["kind"], marker["reason"]) == ("pause", "queue_full")
    assert dict(marker["attrs"])["queue_size"] == "2"


def test_a_resume_that_verl_loses_is_marked_and_the_monitor_ends_it(processor, tmp_path):
    """The sync wakes the processor, which pauses on the old count before the new one is known."""

    async def timeline() -> None:
        task = await run_processor(processor, groups=3)
        await finish_and_train(processor, groups=2)
        answers = processor.message_queue_client.queue_actor.answers
        answers.clear()
        resetting = asyncio.create_task(processor.reset_staleness())
        await settle()
        answers.set()
        await resetting
        await settle()
        assert processor.paused
        assert processor.staleness_samples == 0
        async with processor.lock:  # what verl's monitor does, up to 10 s later
            assert not await processor._should_pause_generation()
            processor.paused = False
            processor._resume_event.set()
        await settle()
        await stop(task)

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    markers = [(r["kind"], r["reason"]) for r in rows(tmp_path / "t", "markers")]
    assert markers == [
        ("pause", "staleness_quota"),
        ("resume", "weight_sync"),
        ("pause", "staleness_quota"),
        ("lost_resume", None),
        ("resume", "monitor"),
    ]
    closed = [r for r in rows(tmp_path / "t", "spans") if r["end_ns"] is not None]
    assert [dict(r["attrs"])["resumed_by"] for r in closed] == ["weight_sync", "monitor"]
    assert closed[0]["end_ns"] <= closed[1]["start_ns"]


def test_a_pause_that_nothing_ended_is_open_in_the_trace(processor, tmp_path):
    async def timeline(rec) -> None:
        task = await run_processor(processor, groups=3)
        rec.flush()
        await stop(task)

    with rlinsight.recording(tmp_path / "t") as rec:
        asyncio.run(timeline(rec))
    (span,) = rows(tmp_path / "t", "spans")
    assert span["end_ns"] is None


# -- the replay buffer ---------------------------------------------------------------------


@pytest.fixture
def buffer(monkeypatch):
    """A real asynchronous buffer holding four groups, one of each kind, two trajectories each."""
    monkeypatch.setattr(replay_module.tq, "kv_clear", lambda **_: None)
    made = replay_module.ReplayBufferAsync(
        trainer_mode="separate_async",
        trainer_config={},
        max_off_policy_threshold=2,
        max_off_policy_strategy="drop",
        sampler_kwargs={},
    )
    made.finished_keys["train"] |= {"stale", "flat", "good"}
    made.failure_keys["train"].add("failed")
    made.running_keys["val"].add("check")
    made.prompt_global_steps["train"].update(stale=1, flat=9, good=9, failed=9)
    for name in ("stale", "flat", "good", "failed"):
        for session in (0, 1):
            made.partitions["train"][f"{name}_{session}_0"] = {}
    return made


def test_evicted_groups_write_the_fate_of_each_trajectory(buffer, tmp_path):
    reasons = ({"stale", "failed"}, {"flat"}, {"failed"}, Counter())
    with rlinsight.recording(tmp_path / "t"):
        buffer._evict_terminal_groups(9, "train", reasons)

    assert fates(tmp_path / "t") == {
        "stale/0": "dropped_stale",
        "stale/1": "dropped_stale",
        "flat/0": "filtered",
        "flat/1": "filtered",
        "failed/0": "dropped_stale",  # stale and failed: it is counted once
        "failed/1": "dropped_stale",
    }
    (marker,) = rows(tmp_path / "t", "markers")
    assert (marker["kind"], marker["lane"]) == ("evict", "replay_buffer")
    assert dict(marker["attrs"]) == {"groups": "3", "stale": "2", "filtered": "1"}


def test_the_surplus_of_a_synchronous_step_is_unconsumed(buffer, tmp_path):
    with rlinsight.recording(tmp_path / "t"):
        buffer._clear_groups("train", {"good"})
        buffer._clear_groups("val", {"check"})
    assert fates(tmp_path / "t") == {"good/0": "unconsumed", "good/1": "unconsumed"}


def test_depths_are_recorded_per_partition_when_they_change(buffer, monkeypatch, tmp_path):
    def prompt(status: str) -> dict:
        return {"is_prompt": True, "global_steps": 1, "status": status}

    states = iter(
        [
            {"train": {"a": prompt("pending"), "b": prompt("running")}},
            {"train": {"a": prompt("running"), "b": prompt("finished")}},
            {"val": {"c": prompt("running")}},
        ]
    )
    monkeypatch.setattr(replay_module.tq, "kv_list", lambda: next(states))
    with rlinsight.recording(tmp_path / "t"):
        for _ in range(3):
            buffer._sync_metadata_from_transfer_queue()

    folder = tmp_path / "t"
    assert counter(folder, "replay_buffer", "replay_pending") == [1, 0]
    assert counter(folder, "replay_buffer", "replay_running") == [1, 0]
    assert counter(folder, "replay_buffer", "replay_finished") == [0, 1, 0]
    assert counter(folder, "replay_buffer/val", "replay_running") == [0, 1]


def test_a_wait_for_samples_shows_the_sleeps_of_the_buffer(buffer, monkeypatch, tmp_path):
    buffer.poll_interval = 0.01
    with rlinsight.recording(tmp_path / "t"):
        buffer._wait_for_next_poll("train", 0.0)
    (span,) = rows(tmp_path / "t", "spans")
    assert (span["activity"], span["lane"]) == ("other:poll", "replay_buffer")
    assert span["end_ns"] - span["start_ns"] >= 10_000_000


# -- agent loops ---------------------------------------------------------------------------


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


# -- switches ------------------------------------------------------------------------------


@pytest.fixture
def trainer():
    """A real separate_async trainer with two hybrid replicas, its remote parts left out."""
    made = object.__new__(separate_module.PPOTrainerSeparateAsync)
    nothing = SimpleNamespace(
        update_weights=lambda *_: None,
        resume_generation_replicas=lambda: None,
        abort_replicas=lambda **_: None,
        sleep_replicas=lambda: None,
    )
    made.checkpoint_manager, made.global_steps = nothing, 4
    made._enable_hybrid_replicas = True
    made.current_mode = separate_module.HybridEngineMode.ROLLOUT
    replicas = [SimpleNamespace(replica_rank=rank) for rank in (0, 1)]
    made.llm_server_manager = SimpleNamespace(
        rollout_replicas=replicas, server_addresses=[], server_handles=[]
    )
    return made


def test_a_switch_is_marked_on_every_hybrid_replica(trainer, monkeypatch, tmp_path):
    monkeypatch.setattr(separate_module.ray, "get", lambda _: None)
    remote = SimpleNamespace(remote=lambda *_: None)
    balancer = SimpleNamespace(add_servers=remote, remove_servers=remote)
    trainer.standalone_server_manager = SimpleNamespace(global_load_balancer=balancer)
    with rlinsight.recording(tmp_path / "t"):
        trainer.switch_to_trainer()
        trainer.switch_to_rollout()

    found = rows(tmp_path / "t", "markers")
    switches_ = [
        (r["lane"], dict(r["attrs"])["from"], dict(r["attrs"])["to"])
        for r in found
        if r["kind"] == "mode_switch"
    ]
    assert switches_ == [
        ("replica0", "rollout", "trainer"),
        ("replica1", "rollout", "trainer"),
        ("replica0", "trainer", "rollout"),
        ("replica1", "trainer", "rollout"),
    ]
    changes = [r["reason"] for r in found if r["kind"] == "balancer"]
    assert changes == ["removed", "removed", "added", "added"]


def test_a_trainer_without_hybrid_replicas_switches_nothing(trainer, tmp_path):
    trainer._enable_hybrid_replicas = False
    with rlinsight.recording(tmp_path / "t"):
        trainer.switch_to_trainer()
    assert rows(tmp_path / "t", "markers") == []


def test_a_colocated_trainer_switches_once_per_step_however_often_it_samples(tmp_path):
    made = object.__new__(colocate_module.PPOTrainerColocateAsync)
    made.global_steps, made.curr_step_profile, made.timing_raw = 7, False, {}
    replicas = [SimpleNamespace(replica_rank=0)]
    made.llm_server_manager = SimpleNamespace(rollout_replicas=replicas)
    made.checkpoint_manager = SimpleNamespace(
        update_weights=lambda *_: None,
        resume_generation_replicas=lambda: None,
        abort_replicas=lambda: None,
        sleep_replicas=lambda: None,
    )
    with rlinsight.recording(tmp_path / "t"):
        made.on_init_end()
        made.on_sample_end()
        made.on_sample_end()
        made.on_step_end()

    found = [dict(r["attrs"]) for r in rows(tmp_path / "t", "markers")]
    sides = [(attrs["from"], attrs["to"]) for attrs in found]
    assert sides == [("init", "rollout"), ("rollout", "trainer"), ("trainer", "rollout")]
