"""The rollouter's pauses: why it stops, what resumes it, and the resume that verl loses."""

from __future__ import annotations

import asyncio
import time
import warnings
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from live_rows import rows
from verl_hooked import counter, put_on
from verl_queues import group, make_queue

import rlinsight
from rlinsight.collectors.verl import message_queue, rollouter, wrap
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.experimental.fully_async_policy.fully_async_rollouter as rollouter_module
    import verl.experimental.fully_async_policy.message_queue as queue_module
    from verl.experimental.fully_async_policy.detach_utils import RolloutSample


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((message_queue, rollouter), queue_module, rollouter_module)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Each test is a run of its own."""
    monkeypatch.setattr(rollouter, "_pauses", rollouter.Pauses())


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
