"""What an emulated run adds to verl: environment, overrides, wrappers; and the host of replicas."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import pickle
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import rlinsight
from rlinsight.errors import ConfigError
from rlinsight.runs.config import RunConfig
from rlinsight.runs.cpu import example
from rlinsight.runs.emulated import (
    batch_clock,
    launch,
    one_process,
    requests,
    setup,
    update_clock,
    waits,
)
from rlinsight.runs.emulated.cost import Emulated, Generation, Lengths
from rlinsight.runs.emulated.handles import INDEX, PROMPT, ServerHandle, WorkerHandle
from rlinsight.runs.emulated.host import Ask, Replicated, Server
from rlinsight.runs.emulated.patches import NAMES, PATCHES
from rlinsight.runs.settings import verl_folder
from rlinsight.trace import run_clock


def config(mode: str = "fully_async", **changes) -> RunConfig:
    resources = {"trainer": {"nodes": 2, "devices_per_node": 8}}
    if mode in ("fully_async", "separate_async"):
        resources["rollout"] = {"nodes": 3, "devices_per_node": 4}
    base = {"mode": mode, "device": "emulated", "model": "example", "data": "example"}
    return RunConfig.model_validate({**base, "resources": resources, **changes})


# -- launching -----------------------------------------------------------------------------


def test_every_process_learns_costs_devices_and_the_clock():
    variables = launch.environment(config(emulated={"time_scale": 0.25, "seed": 3}))
    assert all(isinstance(value, str) for value in variables.values())
    known = setup.Setup.model_validate_json(variables[setup.VARIABLE])
    assert (known.cost.time_scale, known.cost.seed) == (0.25, 3)
    assert (known.trainer.devices, known.trainer.per_node) == (16, 8)
    assert (known.rollout.devices, known.rollout.per_node) == (12, 4)
    assert run_clock.of(variables[run_clock.VARIABLE]).scale == 0.25
    assert importlib.util.find_spec(variables["VERL_USE_EXTERNAL_MODULES"])


@pytest.mark.parametrize("mode", ["fully_async", "separate_async", "colocate_async", "sync"])
def test_only_separate_devices_need_a_transfer_of_weights(mode):
    added = launch.overrides(config(mode), joins=None)
    transfers = [line for line in added if "checkpoint_engine.backend" in line]
    assert len(transfers) == (mode in ("fully_async", "separate_async"))
    assert "actor_rollout_ref.rollout.name=emulated" in added


def test_a_running_cluster_is_refused():
    with pytest.raises(ConfigError, match="Ray of its own, found a cluster"):
        launch.overrides(config(), joins="10.0.0.1:6379")


def test_costs_need_emulated_devices():
    with pytest.raises(ValueError, match="`emulated` is the cost of emulated devices"):
        config(device="cpu", emulated={"seed": 1})


def test_prompts_of_the_example_get_their_length(tmp_path):
    with pytest.raises(ValueError, match="is for `data: example`"):
        config(data={"train": "t", "val": "v"}, emulated={"prompt_tokens": 100})
    made = example.generate(tmp_path, train=5, val=2, prompt_characters=100)
    prompts = pl.read_parquet(made.train)["prompt"].to_list()
    assert {len(prompt[0]["content"]) for prompt in prompts} == {100}


# -- wrappers ------------------------------------------------------------------------------


def _methods(module: str) -> dict[str, set[str]]:
    path = verl_folder().parent / Path(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef):
            found[node.name] = {
                item.name for item in node.body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
            }  # fmt: skip
    return found


@pytest.mark.skipif(verl_folder() is None, reason="verl is not installed")
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.target)
def test_every_wrapped_function_exists_in_the_installed_verl(patch):
    cls, _, method = patch.target.partition(".")
    known = _methods(patch.module)
    # This one is defined by the class's base, in a module of its own.
    inherited = _methods("verl.trainer.ppo.ray_trainer")["RayPPOTrainer"]
    assert method in known[cls] or (cls == "SeparateRayPPOTrainer" and method in inherited)


@pytest.mark.skipif(verl_folder() is None, reason="verl is not installed")
@pytest.mark.parametrize("name", NAMES, ids=lambda name: f"{name[0]}.{name[1]}")
def test_every_rebound_name_is_imported_by_the_installed_verl(name):
    path = verl_folder().parent / Path(*name[0].split(".")).with_suffix(".py")
    imported = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import)]
    assert name[1] in {alias.name for node in imported for alias in node.names}


def test_a_pool_has_one_process_whatever_is_asked_for():
    made = []
    init = one_process.one_process(lambda pool, processes, **_: made.append(processes))
    init(None, process_on_nodes=[8, 8])
    init(None)
    assert made == [[1], None]


def test_hybrid_replicas_are_counted_by_devices(monkeypatch):
    job = SimpleNamespace(trainer=SimpleNamespace(devices=32))
    monkeypatch.setattr(setup, "setup", lambda: job)
    seen = []

    async def initialize(manager):
        group = manager.worker_group
        seen.append(group and (group.world_size, group.workers))

    group = SimpleNamespace(workers=["worker"], world_size=1)
    wrapped = one_process.all_hybrid_replicas(initialize)
    for manager in (SimpleNamespace(worker_group=group), SimpleNamespace(worker_group=None)):
        before = manager.worker_group
        asyncio.run(wrapped(manager))
        assert manager.worker_group is before
    assert seen == [(32, ["worker"]), None]


@pytest.mark.parametrize(
    ("kwargs", "trajectory", "name"),
    [
        ({"uid": "uid_sample_0_7"}, {"rollout_n": 2}, ("uid_sample_0_7", 2)),
        ({"uid": "3f", "session_id": 1}, {"rollout_n": 0}, ("train/5/9", 1)),
        ({"uid": "3f", "session_id": 1}, {"rollout_n": 0, "validate": True}, ("validate/5/9", 1)),
    ],
)
def test_a_request_is_named_by_what_is_the_same_in_every_run(kwargs, trajectory, name):
    async def original(worker, sampling_params, trajectory, **kwargs):
        return sampling_params

    info = {"validate": False, "step": 5, "sample_index": 9, **trajectory}
    given = {"temperature": 1.0}
    sent = asyncio.run(requests.named_request(original)(None, given, info, **kwargs))
    assert (sent[PROMPT], sent[INDEX]) == name
    assert sent["temperature"] == 1.0
    assert PROMPT not in given


def test_waits_of_verl_are_scaled_and_survive_pickling(monkeypatch):
    monkeypatch.setattr(run_clock, "CLOCK", run_clock.emulated(0.001))
    scaled = pickle.loads(pickle.dumps(waits.ScaledAsyncio()))
    assert scaled.gather is asyncio.gather
    asyncio.run(asyncio.wait_for(scaled.sleep(30), timeout=5))
    buffer = SimpleNamespace()
    waits.scaled_poll(lambda buffer: setattr(buffer, "poll_interval", 2.0))(buffer)
    assert buffer.poll_interval == pytest.approx(0.002)


def test_only_what_was_waited_for_delays_an_update():
    clock = batch_clock.BatchClock()
    clock.waited(0.001)
    assert clock.ready_ns == 0
    clock.waited(0.5)
    assert clock.ready_ns > 0


@pytest.mark.parametrize(
    ("now", "ready", "free", "begins"),
    [
        (75, 50, 60, 60),  # the devices were busy when the batch came
        (75, 70, 60, 70),  # the batch came last
        (75, 0, 60, 60),  # nothing was waited for: the batch lay in the queue
        (75, None, 60, 75),  # nobody says when it was there
        (75, 0, 0, 75),  # the first of all
        (75, 90, 60, 75),  # never later than it was asked for
    ],
)
def test_an_update_begins_when_its_devices_could_have(now, ready, free, begins):
    assert batch_clock.could_begin(now, ready, free) == begins


def test_a_batch_says_when_it_was_there(monkeypatch):
    monkeypatch.setattr(batch_clock.BATCH_CLOCK, "ready_ns", 42)
    batch = SimpleNamespace(meta_info={}, extra_info={})
    update_clock.stamped_batch(lambda trainer, batch: None)(None, batch)
    update_clock.stamped_keys(lambda trainer, batch, metrics: None)(None, batch, {})
    assert batch.meta_info == batch.extra_info == {batch_clock.READY: 42}


def test_handles_are_pickled_and_answer_as_ray_s_do():
    handle = pickle.loads(pickle.dumps(ServerHandle("actor", 3)))
    assert handle == ServerHandle("another", 3)
    assert hash(handle) == hash(ServerHandle("actor", 3))
    assert callable(handle.generate.remote)
    assert callable(pickle.loads(pickle.dumps(WorkerHandle("a"))).update_weights.remote)
    with pytest.raises(AttributeError):
        handle.fly.remote()


# -- the host ------------------------------------------------------------------------------

#: In these tests the clock is the machine's: a step takes a millisecond.
FAST = Emulated(
    lengths=Lengths(median=20, sigma=0.0),
    generation=Generation(prefill_s=0.005, prefill_per_token_s=0, step_s=0.001,
                          step_per_response_s=0),
)  # fmt: skip


def ask(index: int, **changes) -> Ask:
    known = f"rli|t|1|1|g/{index}|random"
    return Ask(known, **{"prompt_tokens": 8, "max_tokens": 64, "prompt": "g", "index": str(index),
                         **changes})  # fmt: skip


@pytest.fixture
def serve(tmp_path):
    """Return a function that runs a scenario on a recorded replica and returns its trace."""

    def run(scenario, capacity=4):
        async def main():
            return await scenario(Server(Replicated(0, "standalone", capacity, 1, 64), FAST))

        with rlinsight.recording(tmp_path / "t"):
            result = asyncio.run(main())
        return result, rlinsight.open(tmp_path / "t")

    return run


def test_a_response_is_answered_and_recorded_exactly(serve):
    async def scenario(server):
        server.set_version(3)
        return await asyncio.gather(*(server.generate(ask(i)) for i in range(2)))

    answers, trace = serve(scenario)
    assert answers == [(20, "completed", 3)] * 2
    rows = trace.requests.collect()
    assert rows["sample_uid"].sort().to_list() == ["g/0", "g/1"]
    assert rows["finish"].to_list() == ["stop", "stop"]
    assert rows["validate"].to_list() == [False, False]
    # 5 ms of prefill, then 19 steps of 1 ms, whatever the event loop did meanwhile
    took = (rows["end_ns"] - rows["first_token_ns"]).to_list()
    assert took == [pytest.approx(19e6, abs=1e4)] * 2
    assert (rows["version_start"].to_list(), rows["version_end"].to_list()) == ([3, 3], [3, 3])


def test_an_abort_is_recorded_as_on_a_real_engine_and_resumed(serve):
    async def scenario(server):
        server.set_version(0)
        first = asyncio.create_task(server.generate(ask(0)))
        await asyncio.sleep(0.015)
        server.close(rejects=False)
        aborted = server.abort()
        tokens, reason, _ = await first
        parked = asyncio.create_task(server.generate(ask(0, max_tokens=64 - tokens)))
        await asyncio.sleep(0.01)
        server.set_version(1)
        server.resume()
        return aborted, tokens, reason, await parked

    (aborted, tokens, reason, rest), trace = serve(scenario)
    assert (aborted, reason) == (1, "aborted")
    assert 0 < tokens < 20
    assert rest == (20 - tokens, "completed", 1)
    rows = trace.requests.sort("submit_ns").collect()
    assert rows["finish"].to_list() == ["abort", "stop"]
    assert rows["version_start"].to_list() == [0, 1]
    markers = trace.markers.collect()
    abort = markers.filter(pl.col("kind") == "abort")
    assert {a["key"]: a["value"] for a in abort["attrs"][0]}["aborted_requests"] == "1"
    assert markers.filter(pl.col("kind") == "gate_wait")["reason"].to_list() == ["parked"]
    pause = trace.spans.filter(pl.col("activity") == "paused").collect()
    assert {a["key"]: a["value"] for a in pause["attrs"][0]}["reason"] == "weight_sync"


def test_a_closed_gate_of_a_leaving_replica_turns_requests_away(serve):
    async def scenario(server):
        server.close(rejects=True)
        server.abort()
        return await server.generate(ask(0))

    answer, trace = serve(scenario)
    assert answer == (0, "aborted", None)
    assert trace.requests.collect()["finish"].to_list() == ["abort"]
    assert trace.markers.filter(pl.col("kind") == "gate_wait").collect()["reason"][0] == "rejected"


def test_a_response_that_uses_its_budget_ends_for_its_length(serve):
    async def scenario(server):
        return await server.generate(ask(0, max_tokens=None))

    _, trace = serve(scenario)
    assert trace.requests.collect()["finish"].to_list() == ["stop"]

    async def scenario_cut(server):
        return await server.generate(Ask("plain", 8, 5, "g", "0"))

    answer, trace = serve(scenario_cut)
    assert answer[0] == 1  # 59 of 64 tokens were generated before, so the 20 are long over
    running = trace.counters.filter(pl.col("name") == "running_requests").collect()["value"]
    assert running.max() == 1
    assert running.to_list()[-1] == 0
