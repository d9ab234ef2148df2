"""A training rank's hooks, and the trajectories a fully asynchronous trainer takes in."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
from verl_stand_ins import attrs_of, hooked

import rlinsight
from rlinsight.collectors.verl import samples, workers
from rlinsight.collectors.verl.position import Position, position
from rlinsight.collectors.verl.rank import Rank, rank


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The state of a process in which nothing has run yet, and verl's device module."""
    device = types.ModuleType("verl.utils.device")
    device.get_resource_name = lambda: "GPU"  # type: ignore[attr-defined]
    device.get_device_name = lambda: "cpu"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "verl.utils.device", device)
    monkeypatch.setattr(samples, "_pending", samples._Pending())
    vars(position).update(vars(Position()))
    vars(rank).update(vars(Rank()))
    yield
    vars(position).update(vars(Position()))
    vars(rank).update(vars(Rank()))


class Nested:
    """A nested tensor as verl's `input_ids`: one row of tokens per sequence."""

    is_nested = True

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def values(self) -> Any:
        return np.zeros(sum(self.lengths))


class MicroBatch(dict[str, Any]):
    def __len__(self) -> int:
        return len(self["input_ids"].lengths)


def engine_workers() -> Any:
    def prepare_micro_batches(data: Any) -> Any:
        return data, None

    utils = hooked(
        workers.HOOKS, "verl.workers.engine.utils", prepare_micro_batches=prepare_micro_batches
    )

    class TrainingWorker:
        def __init__(self, model_type: str, rank: int = 0) -> None:
            self.config = SimpleNamespace(model_type=model_type)
            self.rank = rank

        def train_mini_batch(self, data: Any) -> None:
            utils.prepare_micro_batches(data)

        def infer_batch(self, data: Any) -> None:
            utils.prepare_micro_batches(data)

    class ActorRolloutRefWorker:
        def __init__(self, role: str, rank: int) -> None:
            self.role = role
            self.rank = rank

        def init_model(self) -> None:
            self.actor = module.TrainingWorker("language_model")

        def update_actor(self, data: Any) -> None:
            self.actor.train_mini_batch(data)

        def compute_log_prob(self, data: Any) -> None:
            self.actor.infer_batch(data)

        def compute_ref_log_prob(self, data: Any) -> None: ...

        def save_checkpoint(self, path: str) -> None: ...

        async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> None:
            pass

    module = hooked(
        workers.HOOKS,
        "verl.workers.engine_workers",
        TrainingWorker=TrainingWorker,
        ActorRolloutRefWorker=ActorRolloutRefWorker,
    )
    return module


def spans(trace: Path) -> list[dict[str, Any]]:
    return rlinsight.open(trace).spans.collect().to_dicts()


def actor(rank: int = 1) -> Any:
    worker = engine_workers().ActorRolloutRefWorker("actor_rollout", rank)
    worker.init_model()
    return worker


def test_an_update_says_how_many_tokens_each_micro_batch_had(tmp_path: Path) -> None:
    micro_batches = [MicroBatch(input_ids=Nested(30, 50)), MicroBatch(input_ids=Nested(20, 20))]
    with rlinsight.recording(tmp_path):
        actor().update_actor(micro_batches)
    update = next(span for span in spans(tmp_path) if span["activity"] == "update_actor")
    assert update["lane"] == "trainer/rank1"
    assert attrs_of(update) == {
        "sequences": "4",
        "micro_batches": "2",
        "micro_batch_tokens_min": "40",
        "micro_batch_tokens_mean": "60.0",
        "micro_batch_tokens_max": "80",
        "tokens": "120",
    }
    counters = rlinsight.open(tmp_path).counters.collect()
    largest = counters.filter(name="micro_batch_tokens_max").row(0, named=True)
    assert (largest["lane"], largest["value"]) == ("trainer/rank1", 80.0)


def test_a_device_without_allocator_has_no_memory_figures_instead_of_zero(tmp_path: Path) -> None:
    with rlinsight.recording(tmp_path):
        actor().update_actor([MicroBatch(input_ids=Nested(3))])
    counters = rlinsight.open(tmp_path).counters.collect()
    assert set(counters["name"]) == {"micro_batch_tokens_max", "host_memory_peak_bytes"}


def test_memory_peaks_are_read_and_never_reset(tmp_path: Path) -> None:
    peaks = iter([100, 100, 700, 700, 700, 700])
    allocator = SimpleNamespace(
        memory_allocated=lambda: 60,
        max_memory_allocated=lambda: next(peaks),
        max_memory_reserved=lambda: 900,
    )
    device: Any = sys.modules["verl.utils.device"]
    device.get_device_name, device.get_torch_device = (lambda: "cuda"), (lambda: allocator)
    with rlinsight.recording(tmp_path):
        worker = actor()  # the peak is read before and after `init_model`
        worker.update_actor([])
    update = next(span for span in spans(tmp_path) if span["activity"] == "update_actor")
    assert attrs_of(update) == {"memory_peak_bytes": "700", "memory_peak_rose": "False"}
    counters = rlinsight.open(tmp_path).counters.collect()
    values = dict(counters.select("name", "value").rows())
    assert values["device_memory_peak_bytes"] == 700
    assert values["device_memory_reserved_peak_bytes"] == 900
    assert values["device_memory_allocated_bytes"] == 60


def test_the_worker_inside_an_actors_worker_is_not_recorded_again(tmp_path: Path) -> None:
    with rlinsight.recording(tmp_path):
        worker = actor()
        worker.update_actor([])
        worker.compute_log_prob({})
        worker.compute_log_prob({"no_lora_adapter": True})
        worker.compute_log_prob(SimpleNamespace(extra_info={"no_lora_adapter": True}))
    assert [span["activity"] for span in spans(tmp_path)] == [
        "init",
        "update_actor",
        "old_log_prob",
        "ref_log_prob",
        "ref_log_prob",
    ]


def test_a_critic_of_its_own_has_its_own_lane(tmp_path: Path) -> None:
    with rlinsight.recording(tmp_path):
        critic = engine_workers().TrainingWorker("value_model", rank=1)
        critic.infer_batch([])
        critic.train_mini_batch([])
    found = [(span["activity"], span["lane"]) for span in spans(tmp_path)]
    lane = "trainer/critic/rank1"
    assert found == [("values", lane), ("update_critic", lane)]


def test_a_critic_beside_an_actor_shares_the_ranks_lane(tmp_path: Path) -> None:
    with rlinsight.recording(tmp_path):
        module = engine_workers()
        module.ActorRolloutRefWorker("actor_rollout_ref", 1)
        module.TrainingWorker("value_model", rank=1).infer_batch([])
    assert [span["lane"] for span in spans(tmp_path)] == ["trainer/rank1"]
    (lane,) = [lane for lane in rlinsight.open(tmp_path).topology.lanes if lane.rank is not None]
    assert (lane.id, lane.role, lane.rank) == ("trainer/rank1", "trainer_rank", 1)


def test_a_rank_knows_the_version_it_sent_last(tmp_path: Path) -> None:
    with rlinsight.recording(tmp_path):
        worker = actor()
        asyncio.run(worker.update_weights(global_steps=6, mode="naive"))
        worker.update_actor([])
    init, sync, update = spans(tmp_path)
    assert (init["param_version"], sync["param_version"], update["param_version"]) == (None, 6, 6)
    assert attrs_of(sync) == {"backend": "naive"}


# -- the fully asynchronous trainer's samples ------------------------------------------


class Batch(SimpleNamespace):
    """What a RolloutSample carries: two trajectories, prompts padded on the left."""


def group(sample_id: str, *, versions: tuple[int, int]) -> Any:
    data = Batch(
        batch={
            "prompts": np.zeros((2, 3)),
            "attention_mask": np.array([[0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1]]),
            "rm_scores": np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.25]]),
        },
        non_tensor_batch={
            "min_global_steps": [versions[0]] * 2,
            "max_global_steps": [versions[1]] * 2,
        },
    )
    return SimpleNamespace(sample_id=sample_id, full_batch=data)


class FullyAsync:
    """The parts of a fully asynchronous trainer that touch samples, over a given queue."""

    def __init__(self, queue: list[Any], required: int) -> None:
        package = "verl.experimental.fully_async_policy"
        blobs = [None if item is None else ray.cloudpickle.dumps(item) for item in queue]

        class MessageQueueClient:
            async def get_sample(self) -> Any:
                return blobs.pop(0), len(blobs)

        class FullyAsyncTrainer:
            global_steps = 4
            local_trigger_step = 1

            async def _get_samples_from_queue(self) -> Any:
                taken = []
                while len(taken) < required:
                    sample, _ = await client.get_sample()
                    if sample is None:
                        return None, None
                    taken.append(ray.cloudpickle.loads(sample))
                return 0, detach.assemble_batch_from_rollout_samples(taken)

            async def fit_step(self) -> None:
                _, batch = await self._get_samples_from_queue()
                if batch is None:
                    raise EOFError
                self.global_steps += 1

        detach = hooked(
            samples.HOOKS,
            f"{package}.detach_utils",
            assemble_batch_from_rollout_samples=lambda rollout_samples: rollout_samples,
        )
        queues = hooked(
            samples.HOOKS, f"{package}.message_queue", MessageQueueClient=MessageQueueClient
        )
        module = hooked(
            samples.HOOKS, f"{package}.fully_async_trainer", FullyAsyncTrainer=FullyAsyncTrainer
        )
        client = queues.MessageQueueClient()
        self.trainer = module.FullyAsyncTrainer()


def test_every_trajectory_of_a_fit_step_is_trained_once(tmp_path: Path) -> None:
    queue = [group("0_7", versions=(1, 2)), group("0_9", versions=(2, 2))]
    run = FullyAsync(queue, required=2)
    with rlinsight.recording(tmp_path):
        position.attach(run.trainer)
        position.param_version = 2
        asyncio.run(run.trainer.fit_step())
    rows = rlinsight.open(tmp_path).samples.collect().sort("sample_uid").to_dicts()
    assert [row["sample_uid"] for row in rows] == [
        f"uid_0_{group}/{rollout}" for group in (7, 9) for rollout in (0, 1)
    ]
    first = rows[0]
    assert (first["group_uid"], first["prompt_tokens"], first["response_tokens"]) == (
        "uid_0_7",
        2,
        2,
    )
    assert (first["version_start"], first["version_end"], first["trained_version"]) == (1, 2, 2)
    assert [row["reward"] for row in rows] == [1.0, 0.25, 1.0, 0.25]
    assert {(row["trained_step"], row["fate"]) for row in rows} == {(4, "trained")}
    assert rows[0]["consumed_ns"] < rows[2]["consumed_ns"]  # one by one from the queue


def test_what_was_taken_for_a_batch_that_never_filled_is_not_forgotten(tmp_path: Path) -> None:
    run = FullyAsync([group("0_1", versions=(3, 3)), None], required=2)
    with rlinsight.recording(tmp_path):
        position.attach(run.trainer)
        with pytest.raises(EOFError):
            asyncio.run(run.trainer.fit_step())
    rows = rlinsight.open(tmp_path).samples.collect().to_dicts()
    assert [(row["sample_uid"], row["fate"]) for row in rows] == [
        ("uid_0_1/0", "unconsumed"),
        ("uid_0_1/1", "unconsumed"),
    ]
    assert {row["trained_step"] for row in rows} == {None}
