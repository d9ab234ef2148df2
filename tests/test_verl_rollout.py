"""What a replica's server records of each generation attempt, told as timelines."""

from __future__ import annotations

import asyncio
import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import rlinsight
from rlinsight.collectors.verl import actors, agent_loop, engine, identity, replica, rollout, wrap
from rlinsight.collectors.verl.agent_loop import output_uid, sample_uid, tagging
from rlinsight.collectors.verl.engine import Envelope, ReplicaGauges
from rlinsight.collectors.verl.prefix_cache import HitRate
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.workers.rollout.llm_server as client_module
    import verl.workers.rollout.vllm_rollout.vllm_async_server as server_module
    import vllm.v1.engine.output_processor as output_processor
    from verl.workers.rollout.replica import RolloutMode, TokenOutput
    from vllm.v1.engine import (
        EngineCoreEvent,
        EngineCoreEventType,
        EngineCoreOutput,
        EngineCoreRequest,
        FinishReason,
    )
    from vllm.v1.metrics.stats import IterationStats, PrefixCacheStats, SchedulerStats

SECOND = 1_000_000_000
real_sleep = asyncio.sleep


def rows(folder: Path, table: str) -> list[dict]:
    """Closed rows of a table, in order of writing."""
    found: list[dict] = []
    for path in sorted((folder / "live").glob(f"{table}-*.arrows")):
        with pa.ipc.open_stream(str(path)) as stream:
            found += [row for batch in stream for row in batch.to_pylist()]
    return [row for row in found if row.get("end_ns", 1) is not None]


# -- identity ------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_trajectory():
    """No trajectory of an earlier test is running."""
    yield identity.trajectory.set(None)
    identity.trajectory.set(None)
    identity.turn.set(None)


def tagged(attempt: int, uid: str = "g/0", *, validate: bool | None = False) -> str:
    """The engine's id of that attempt of the trajectory's first turn."""
    trajectory = identity.Trajectory(uid, uid.split("/")[0], validate, turns=1)
    token = identity.turn.set(identity.Turn(trajectory, 1, attempt))
    try:
        return identity.tag("5f0c")
    finally:
        identity.turn.reset(token)


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
        ("", "replica1"),
    ],
)
def test_a_reward_model_does_not_share_the_lane_of_a_policy_replica(name, lane):
    assert actors.replica_lane_id(1, name) == lane


def test_workers_are_told_apart_by_their_number():
    assert actors.worker_lane("agent_loop", "agent_loop_worker_3_9f2a71bc", 11) == "agent_loop/3"
    assert actors.worker_lane("reward", "somebody", 11) == "reward/pid11"


# -- the engine's counters -----------------------------------------------------------------


def test_no_peak_of_a_fast_gauge_is_lost_between_two_samples():
    gauge = Envelope(interval_ns=10)
    points = []
    for ts, value in enumerate([0.1, 0.2, 0.9, 0.2, 0.05, 0.3, 0.3, 0.3, 0.3, 0.3, 0.4]):
        points += gauge.add(ts, value)
    assert points == [(2, 0.9), (4, 0.05), (9, 0.3)]
    assert gauge.drain() == [(10, 0.4)]


def test_a_constant_gauge_is_recorded_once():
    gauge = Envelope(interval_ns=1)
    points = [point for ts in range(10) for point in gauge.add(ts, 0.5)]
    assert points == [(0, 0.5)]


def scheduler(running: int, waiting: int, usage: float) -> SchedulerStats:
    return SchedulerStats(num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage)


def test_running_and_waiting_requests_are_recorded_at_every_change(tmp_path):
    with rlinsight.recording(tmp_path / "t") as rec:
        gauges = ReplicaGauges("replica3", interval_ns=SECOND)
        preempted = IterationStats()
        preempted.num_preempted_reqs = 2
        for stats in (scheduler(1, 0, 0.1), scheduler(1, 0, 0.4), scheduler(2, 3, 0.2)):
            gauges.update(rec, 0, stats, None)
        gauges.update(rec, 0, None, preempted)
        gauges.update(rec, 0, scheduler(0, 0, 0.0), IterationStats())

    seen = [(row["name"], row["value"]) for row in rows(tmp_path / "t", "counters")]
    assert [v for n, v in seen if n == "running_requests"] == [1, 2, 0]
    assert [v for n, v in seen if n == "waiting_requests"] == [0, 3, 0]
    assert [v for n, v in seen if n == "preemptions"] == [0, 2]
    assert [v for n, v in seen if n == "kv_cache_usage"] == [0.4, 0.0]


def test_the_hit_rate_of_an_interval_is_hits_over_looked_up_tokens():
    rate = HitRate(interval_ns=SECOND)
    seen = [
        rate.add(at, PrefixCacheStats(requests=1, queries=queries, hits=hits))
        for at, queries, hits in [(0, 40, 0), (SECOND // 2, 60, 30), (SECOND, 100, 70)]
    ]
    assert seen == [None, None, 0.5]
    assert rate.add(2 * SECOND, None) is None  # nothing was looked up: no rate, not 0
    assert rate.add(3 * SECOND, PrefixCacheStats(requests=1, queries=10, hits=0)) == 0.0


def test_counts_add_over_the_engines_of_a_replica_and_drop_when_all_is_aborted(tmp_path):
    with rlinsight.recording(tmp_path / "t") as rec:
        gauges = ReplicaGauges("replica4", interval_ns=SECOND)
        gauges.update(rec, 0, scheduler(4, 1, 0.3), None)
        gauges.update(rec, 1, scheduler(2, 0, 0.7), None)
        gauges.drained(rec)

    seen = [(row["name"], row["value"]) for row in rows(tmp_path / "t", "counters")]
    assert [v for n, v in seen if n == "running_requests"] == [4, 6, 0]


def test_the_sampling_interval_comes_from_the_run(monkeypatch):
    monkeypatch.setenv("RLINSIGHT_COLLECTORS", json.dumps({"sample_interval_s": 0.25}))
    assert engine.sample_interval_ns() == SECOND // 4
    monkeypatch.setenv("RLINSIGHT_COLLECTORS", "not json")
    assert engine.sample_interval_ns() == SECOND


# -- the server ----------------------------------------------------------------------------


class Engine:
    """vLLM's real output processor, fed by hand instead of by an engine core."""

    def __init__(self) -> None:
        self.output_processor = output_processor.OutputProcessor(None, log_stats=True)
        self.first_token_ts = 0.0

    async def generate(self, prompt, sampling_params, request_id, **_):
        queue = output_processor.RequestOutputCollector(sampling_params.output_kind, "internal")
        request = EngineCoreRequest(
            request_id=f"internal-{request_id}",
            prompt_token_ids=prompt["prompt_token_ids"],
            mm_features=None,
            sampling_params=sampling_params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        request.external_req_id = request_id
        self.output_processor.add_request(request, None, queue=queue)
        self.queue, self.internal_id = queue, request.request_id
        while True:
            out = await queue.get()
            yield out
            if out.finished:
                return

    def step(self, at_s: float, finish: FinishReason | None = None) -> None:
        """One new token at `at_s` on the monotonic clock."""
        queued = EngineCoreEvent.new_event(EngineCoreEventType.QUEUED, at_s)
        core = EngineCoreOutput(self.internal_id, [7], finish_reason=finish, events=[queued])
        self.output_processor.process_outputs([core], at_s, IterationStats())

    async def pause_generation(self, **_) -> None:
        self.step(self.first_token_ts, FinishReason.ABORT)

    async def resume_generation(self) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's and vLLM's real classes; they do nothing while nothing records."""
    modules = {m.__name__: m for m in (server_module, client_module, output_processor)}
    for hook in (*rollout.HOOKS, *agent_loop.HOOKS):
        if hook.module in modules:
            wrap.apply(modules[hook.module], hook)


@pytest.fixture
def server():
    """A real vLLMHttpServer without the engine that it would start."""
    made = object.__new__(server_module.vLLMHttpServer)
    made.config = SimpleNamespace(
        max_model_len=64,
        response_length=16,
        prompt_length=16,
        full_determinism=False,
        enable_rollout_routing_replay=False,
        mtp=None,
        free_cache_engine=False,
        get=lambda key, default=None: default,
    )
    made.model_config = SimpleNamespace(processor=None, lora_rank=0, lora={})
    made.engine, made.global_steps = Engine(), 3
    made.replica_rank, made.node_rank = 0, 0
    made.rollout_mode = RolloutMode.STANDALONE
    made._disaggregation_role, made._pd_decode_peers = "null", []
    made._submission_paused, made._rejecting, made._admitting = False, False, 0
    made._resume_event = asyncio.Event()
    made._resume_event.set()
    return made


async def start(server, attempt: int = 1, max_tokens: int = 8) -> asyncio.Task:
    params = {"max_tokens": max_tokens}
    task = asyncio.create_task(server.generate([1, 2, 3], params, tagged(attempt)))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def monotonic_s(rec) -> float:
    return (rec.now_ns() - rec.offset_ns) / SECOND


def test_a_request_is_one_row_with_the_engines_first_token_and_finish(server, tmp_path):
    async def timeline(rec) -> float:
        task = await start(server)
        first = monotonic_s(rec)
        server.engine.step(first)
        server.engine.step(first, FinishReason.STOP)
        await task
        return first

    with rlinsight.recording(tmp_path / "t") as rec:
        first = asyncio.run(timeline(rec))
        offset_ns = rec.offset_ns

    (row,) = rows(tmp_path / "t", "requests")
    assert (row["request_id"], row["sample_uid"], row["attempt"]) == ("g/0#1", "g/0", 1)
    assert (row["lane"], row["engine_kind"], row["validate"]) == ("replica0", "standalone", False)
    assert (row["prompt_tokens"], row["response_tokens"], row["finish"]) == (3, 2, "stop")
    assert row["first_token_ns"] == int(first * SECOND) + offset_ns
    assert row["submit_ns"] <= row["first_token_ns"] <= row["end_ns"]


def test_verl_says_completed_where_the_engine_says_length(server, tmp_path):
    async def timeline(rec) -> None:
        task = await start(server)
        server.engine.step(monotonic_s(rec), FinishReason.LENGTH)
        assert (await task).stop_reason == "completed"

    with rlinsight.recording(tmp_path / "t") as rec:
        asyncio.run(timeline(rec))
    assert [row["finish"] for row in rows(tmp_path / "t", "requests")] == ["length"]


def test_a_first_token_on_another_hosts_clock_is_left_unknown(server, tmp_path):
    async def timeline() -> None:
        task = await start(server)
        server.engine.step(5.0, FinishReason.STOP)  # 5 s after some other machine's boot
        await task

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())
    (row,) = rows(tmp_path / "t", "requests")
    assert row["first_token_ns"] is None


def test_a_weight_sync_aborts_parks_and_releases(server, tmp_path):
    """Attempt 1 runs when version 3 is replaced; attempt 2 arrives behind the closed gate."""

    async def timeline(rec) -> None:
        running = await start(server, attempt=1)
        server.engine.step(monotonic_s(rec))
        server.engine.first_token_ts = monotonic_s(rec)
        result = await server.abort_all_requests()
        assert result["aborted_count"] == 1
        await running
        parked = await start(server, attempt=2)
        await server.set_global_steps(4)
        await server.resume_generation()
        for _ in range(5):
            await asyncio.sleep(0)
        server.engine.step(monotonic_s(rec), FinishReason.STOP)
        await parked

    with rlinsight.recording(tmp_path / "t") as rec:
        asyncio.run(timeline(rec))

    first, second = rows(tmp_path / "t", "requests")
    assert (first["finish"], first["version_start"], first["version_end"]) == ("abort", 3, 3)
    assert first["response_tokens"] == 2
    assert (second["finish"], second["version_start"], second["version_end"]) == ("stop", 4, 4)
    (paused,) = rows(tmp_path / "t", "spans")
    assert (paused["activity"], paused["lane"]) == ("paused", "replica0")
    assert dict(paused["attrs"])["reason"] == "weight_sync"
    markers = {row["kind"]: row for row in rows(tmp_path / "t", "markers")}
    assert dict(markers["abort"]["attrs"])["aborted_requests"] == "1"
    assert markers["param_sync"]["param_version"] == 4
    assert (markers["gate_wait"]["reason"], markers["gate_wait"]["param_version"]) == ("parked", 4)
    assert paused["start_ns"] < markers["param_sync"]["ts_ns"] < paused["end_ns"]


def test_a_replica_that_leaves_the_rollout_turns_requests_away(server, tmp_path):
    async def timeline() -> None:
        server.engine.pause_generation = lambda **_: asyncio.sleep(0)
        await server.abort_all_requests(reject_request=True)
        await (await start(server))

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())

    (row,) = rows(tmp_path / "t", "requests")
    assert (row["finish"], row["response_tokens"]) == ("abort", 0)
    kinds = {row["kind"]: row["reason"] for row in rows(tmp_path / "t", "markers")}
    assert kinds["gate_wait"] == "rejected"
    replica._paused.clear()


def test_a_request_that_fails_is_an_error_and_stays_the_callers(server, tmp_path):
    async def timeline() -> None:
        with pytest.raises(ValueError, match="leaves no room"):
            await server.generate(list(range(64)), {}, tagged(1))

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())
    (row,) = rows(tmp_path / "t", "requests")
    assert (row["finish"], row["response_tokens"]) == ("error", None)


def test_requests_are_counted_here_where_the_engine_keeps_no_statistics(server, tmp_path):
    async def timeline(rec) -> None:
        task = await start(server)
        server.engine.step(monotonic_s(rec), FinishReason.STOP)
        await task

    assert not engine.stats_active
    with rlinsight.recording(tmp_path / "t") as rec:
        asyncio.run(timeline(rec))
    counters = rows(tmp_path / "t", "counters")
    assert [r["value"] for r in counters if r["name"] == "running_requests"] == [1, 0]


def test_a_request_in_flight_when_the_process_dies_is_in_the_trace(server, tmp_path):
    async def timeline(rec) -> None:
        task = await start(server)
        rec.flush()
        server.engine.step(monotonic_s(rec), FinishReason.STOP)
        await task

    with rlinsight.recording(tmp_path / "t") as rec:
        asyncio.run(timeline(rec))
    path = next((tmp_path / "t" / "live").glob("requests-*.arrows"))
    with pa.ipc.open_stream(str(path)) as stream:
        both = [row for batch in stream for row in batch.to_pylist()]
    assert [row["end_ns"] is None for row in both] == [True, False]
    assert both[0]["submit_ns"] == both[1]["submit_ns"]
    assert both[0]["attempt"] == both[1]["attempt"] == 1


# -- finish --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop_reason", "tokens", "finish"),
    [
        ("completed", 8, "length"),
        ("completed", 7, "stop"),
        ("aborted", 8, "abort"),
        ("repetition", 4, "stop"),
        (None, 4, None),
    ],
)
def test_the_budget_tells_stop_from_length_where_the_engine_was_not_heard(
    stop_reason, tokens, finish
):
    attempt = rollout.Attempt(None, "replica0", 1, budget=8)
    call = SimpleNamespace(error=None, result=SimpleNamespace(stop_reason=stop_reason))
    assert rollout.finish_of(attempt, call, tokens) == finish


def test_the_budget_is_what_the_server_will_allow():
    config = SimpleNamespace(response_length=512)
    assert rollout.token_budget({"max_tokens": 40}, config) == 40
    assert rollout.token_budget({"max_new_tokens": 41}, config) == 41
    assert rollout.token_budget({}, config) == 512
