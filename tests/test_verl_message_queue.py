"""The message queue of fully_async: every put and get, and the fate of what nobody got."""

from __future__ import annotations

import asyncio
import warnings

import pytest
from verl_hooked import counter, fates, put_on
from verl_queues import group, make_queue

import rlinsight
from rlinsight.collectors.verl import message_queue
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray.cloudpickle as cloudpickle
    import verl.experimental.fully_async_policy.message_queue as queue_module


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((message_queue,), queue_module)


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
