"""The driver's hooks on a stand-in trainer of verl's shape: phases, syncs, trained samples."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from verl_stand_ins import attrs_of, hooked

import rlinsight
from rlinsight.collectors.verl import samples, topology, tracking, trainer, weights
from rlinsight.collectors.verl.position import Position, position


@pytest.fixture(autouse=True)
def fresh_position() -> Iterator[None]:
    vars(position).update(vars(Position()))
    yield
    vars(position).update(vars(Position()))


def timers() -> Any:
    def _timer(name: str, timing_raw: dict[str, float]) -> Iterator[None]:
        yield
        timing_raw[name] = 1.0

    return hooked(trainer.HOOKS, "verl.utils.profiler.performance", _timer=_timer)


@contextmanager
def timed(module: Any, name: str) -> Iterator[None]:
    """As verl's `marked_timer`."""
    yield from module._timer(name, {})


class Trainer:
    """A v1 trainer at step 3, in the second update of its cycle."""

    global_steps = 3
    local_trigger_step = 1


class Replica:
    def __init__(self, rank: int, kind: str) -> None:
        self.replica_rank = rank
        self.rollout_mode = SimpleNamespace(value=kind)


class Manager:
    """verl's CheckpointEngineManager without the transfer."""

    def __init__(self, backend: str, replicas: list[Replica]) -> None:
        self.backend = backend
        self.replicas = replicas

    async def update_weights(self, global_steps: int | None = None) -> None:
        if self.backend == "naive":
            return
        await self.abort_replicas()
        self.build_process_group("rollout")
        await self.resume_kv_cache_replicas()
        await self.resume_generation_replicas()

    async def abort_replicas(self) -> None: ...
    async def resume_kv_cache_replicas(self) -> None: ...
    async def resume_generation_replicas(self) -> None: ...
    async def release_kv_cache_replicas(self) -> None: ...
    async def sleep_replicas(self) -> None: ...
    async def wake_up_replicas(self) -> None: ...
    def build_process_group(self, rollout: str) -> None: ...


def manager(backend: str, *replicas: Replica) -> Manager:
    module = "verl.checkpoint_engine.base"
    copied = type("CheckpointEngineManager", (), dict(vars(Manager)))
    base = hooked(weights.HOOKS, module, CheckpointEngineManager=copied)
    made: Manager = base.CheckpointEngineManager(backend, list(replicas))
    return made


def spans(trace: Path) -> list[dict[str, Any]]:
    frame: pl.DataFrame = rlinsight.open(trace).spans.collect()
    return frame.sort("start_ns", maintain_order=True).to_dicts()


def test_a_phase_carries_step_version_and_verls_own_name(tmp_path: Path) -> None:
    module, driver = timers(), Trainer()
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        position.param_version = 2
        with timed(module, "step"), timed(module, "adv"):
            pass
    step, advantage = sorted(spans(tmp_path), key=lambda s: s["activity"], reverse=True)
    assert (step["activity"], step["lane"], step["step"]) == ("step", "trainer", 3)
    assert (advantage["activity"], advantage["param_version"]) == ("advantage", 2)
    assert attrs_of(advantage) == {"local_step": "1", "timer": "adv"}


@pytest.mark.parametrize(
    ("timer", "activity"),
    [
        ("gen", "wait_samples"),
        ("switch_wait", "wait_samples"),
        ("ref", "ref_log_prob"),
        ("timing_s/param_sync", "weight_sync"),
        ("update_weights", "weight_sync"),
        ("testing", "validate"),
        ("save_checkpoint", "checkpoint"),
        ("start_profile", "other:start_profile"),
    ],
)
def test_timers_of_every_trainer_are_translated(tmp_path: Path, timer: str, activity: str) -> None:
    module, driver = timers(), Trainer()
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        with timed(module, timer):
            pass
    assert [span["activity"] for span in spans(tmp_path)] == [activity]


def test_a_timer_in_a_process_without_trainer_is_none_of_the_drivers(tmp_path: Path) -> None:
    module = timers()
    with rlinsight.recording(tmp_path), timed(module, "generate_sequences"):
        pass
    assert spans(tmp_path) == []


def test_a_phase_that_fails_ends_with_its_error(tmp_path: Path) -> None:
    module, driver = timers(), Trainer()
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        with pytest.raises(MemoryError), timed(module, "update_actor"):
            raise MemoryError
    (span,) = spans(tmp_path)
    assert attrs_of(span)["error"] == "MemoryError"
    assert position.phases == []


def test_a_sync_outside_any_phase_is_one_and_makes_its_version_live(tmp_path: Path) -> None:
    driver, hybrid = Trainer(), manager("naive", Replica(0, "hybrid"))
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        asyncio.run(hybrid.update_weights(4))
    (span,) = spans(tmp_path)
    assert (span["activity"], span["param_version"]) == ("weight_sync", 4)
    (marker,) = rlinsight.open(tmp_path).markers.collect().to_dicts()
    assert (marker["kind"], marker["param_version"]) == ("param_sync", 4)
    assert marker["ts_ns"] == span["end_ns"]
    assert attrs_of(marker)["hybrid_replicas"] == "1"


def test_stages_of_a_sync_tile_it_and_never_count_twice(tmp_path: Path) -> None:
    module, driver = timers(), Trainer()
    standalone = manager("nccl", Replica(1, "standalone"), Replica(2, "standalone"))
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        with timed(module, "update_weights"):
            asyncio.run(standalone.update_weights(global_steps=3))
    found = {span["activity"]: span for span in spans(tmp_path)}
    stages = ["abort", "build_group", "transfer", "resume_kv_cache", "resume"]
    assert set(found) == {"weight_sync", "other:weight_sync.total"} | {
        f"other:weight_sync.{stage}" for stage in stages
    }
    ends = [found[f"other:weight_sync.{stage}"]["end_ns"] for stage in stages]
    assert ends == sorted(ends)
    transfer = found["other:weight_sync.transfer"]
    assert transfer["start_ns"] == found["other:weight_sync.build_group"]["end_ns"]
    assert transfer["end_ns"] == found["other:weight_sync.resume_kv_cache"]["start_ns"]
    assert found["weight_sync"]["param_version"] == 3  # the version it made live
    (marker,) = rlinsight.open(tmp_path).markers.collect().to_dicts()
    assert {f"{stage}_s" for stage in stages} <= set(attrs_of(marker))
    assert attrs_of(marker)["replicas"] == "1,2"


def test_a_sync_that_fails_makes_no_version_live(tmp_path: Path) -> None:
    driver, broken = Trainer(), manager("nccl", Replica(0, "standalone"))
    broken.build_process_group = lambda _: 1 / 0  # type: ignore[assignment, method-assign]
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        with pytest.raises(ZeroDivisionError):
            asyncio.run(broken.update_weights(9))
    assert position.param_version is None
    assert rlinsight.open(tmp_path).markers.collect().is_empty()


def test_v1_rows_are_written_for_what_one_update_trained(tmp_path: Path) -> None:
    class ReplayBuffer:
        def _materialize_batch(self, partition_id: str) -> None: ...

    class PPOTrainer(Trainer):
        def _step_once(self) -> Any:
            buffer.ReplayBuffer()._materialize_batch("train")
            buffer.ReplayBuffer()._materialize_batch(partition_id="val")
            utils.compute_advantage_for_multi_trajectories(data, batch_keys=keys)
            return SimpleNamespace(keys=keys, tags=tags)

    class Scores(list[float]):
        def sum(self, axis: int) -> Any:
            assert axis == -1
            return SimpleNamespace(tolist=lambda: list(self))

    keys = ["u1_0_0", "u1_1_0", "u1_1_1", "pad_0_0"]
    tag = {"prompt_len": 5, "response_len": 9, "min_global_steps": 1, "max_global_steps": 2}
    tags = [tag, tag, tag, {"is_padding": True}]
    data = SimpleNamespace(batch={"token_level_scores": Scores([1.0, 0.0, 0.5, 0.0])})
    utils = hooked(
        samples.HOOKS,
        "verl.trainer.ppo.v1.utils",
        compute_advantage_for_multi_trajectories=lambda data, batch_keys: None,
    )
    buffer = hooked(samples.HOOKS, "verl.trainer.ppo.v1.replay_buffer", ReplayBuffer=ReplayBuffer)
    base = hooked(samples.HOOKS, "verl.trainer.ppo.v1.trainer_base", PPOTrainer=PPOTrainer)
    driver = base.PPOTrainer()
    with rlinsight.recording(tmp_path):
        position.attach(driver)
        position.param_version = 2
        driver._step_once()
    rows = rlinsight.open(tmp_path).samples.collect().sort("sample_uid").to_dicts()
    assert [(r["sample_uid"], r["reward"]) for r in rows] == [
        ("u1/0", 1.0),
        ("u1/1", 0.0),
        ("u1/1.1", 0.5),
    ]
    row = rows[0]
    assert (row["group_uid"], row["prompt_tokens"], row["response_tokens"]) == ("u1", 5, 9)
    assert (row["version_start"], row["version_end"], row["trained_version"]) == (1, 2, 2)
    assert (row["trained_step"], row["fate"]) == (3, "trained")
    assert row["consumed_ns"] is not None
    assert {r["consumed_ns"] for r in rows} == {row["consumed_ns"]}


def test_everything_numeric_that_is_logged_is_a_metric(tmp_path: Path) -> None:
    class Tracking:
        def log(self, data: dict[str, Any], step: int) -> None: ...

    module = hooked(tracking.HOOKS, "verl.utils.tracking", Tracking=Tracking)
    logged = {"loss": 0.5, "n": 3, "ok": True, "name": "x", "list": [1.0], "nan": float("nan")}
    with rlinsight.recording(tmp_path):
        module.Tracking().log(data=logged, step=7)
    rows = rlinsight.open(tmp_path).metrics.select("key", "value", "step").collect().rows()
    assert {key: step for key, _, step in rows} == {"loss": 7, "n": 7, "ok": 7, "nan": 7}


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ({"async_training": {}, "trainer": {}}, "fully_async"),
        ({"trainer": {"v1": {"trainer_mode": "separate_async"}}}, "separate_async"),
        ({"trainer": {}}, None),
    ],
)
def test_the_mode_is_read_from_the_configuration(config: dict[str, Any], mode: str | None) -> None:
    assert topology.mode_of(config) == mode
