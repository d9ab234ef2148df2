"""What a replica's server records of each generation attempt, told as timelines."""

from __future__ import annotations

import asyncio
import warnings
from types import SimpleNamespace

import pytest
from live_rows import closed_rows, rows
from verl_hooked import put_on, tagged

import rlinsight
from rlinsight.collectors.verl import engine, replica, rollout
from rlinsight.runs.cpu import metadata

metadata.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.workers.rollout.vllm_rollout.vllm_async_server as server_module
    import vllm.v1.engine.output_processor as output_processor
    from verl.workers.rollout.replica import RolloutMode
    from vllm.v1.engine import (
        EngineCoreEvent,
        EngineCoreEventType,
        EngineCoreOutput,
        EngineCoreRequest,
        FinishReason,
    )
    from vllm.v1.metrics.stats import IterationStats

SECOND = 1_000_000_000


@pytest.fixture(scope="module", autouse=True)
def hooked():
    """The hooks on verl's real classes; they do nothing while nothing records."""
    put_on((rollout,), server_module, output_processor)


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

    (row,) = closed_rows(tmp_path / "t", "requests")
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
    assert [row["finish"] for row in closed_rows(tmp_path / "t", "requests")] == ["length"]


def test_a_first_token_on_another_hosts_clock_is_left_unknown(server, tmp_path):
    async def timeline() -> None:
        task = await start(server)
        server.engine.step(5.0, FinishReason.STOP)  # 5 s after some other machine's boot
        await task

    with rlinsight.recording(tmp_path / "t"):
        asyncio.run(timeline())
    (row,) = closed_rows(tmp_path / "t", "requests")
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

    first, second = closed_rows(tmp_path / "t", "requests")
    assert (first["finish"], first["version_start"], first["version_end"]) == ("abort", 3, 3)
    assert first["response_tokens"] == 2
    assert (second["finish"], second["version_start"], second["version_end"]) == ("stop", 4, 4)
    (paused,) = closed_rows(tmp_path / "t", "spans")
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

    (row,) = closed_rows(tmp_path / "t", "requests")
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
    (row,) = closed_rows(tmp_path / "t", "requests")
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
    both = rows(tmp_path / "t", "requests")
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


@pytest.mark.parametrize(
    ("prompt_tokens", "asked", "budget"),
    [
        (3, {"max_tokens": 8}, 8),
        (3, {"max_new_tokens": 9}, 9),
        (3, {}, 16),  # a whole response
        (20, {}, 12),  # a later turn: what is left of prompt and response together
        (60, {"max_tokens": 8}, 4),  # what is left of the engine's length
        (40, {}, 1),  # nothing is left, and one token is the least
    ],
)
def test_the_budget_is_what_the_server_allows(server, tmp_path, prompt_tokens, asked, budget):
    """Asked of verl's own server: the engine is given that many tokens."""
    given = []

    async def generate(prompt, sampling_params, request_id, **_):
        given.append(sampling_params.max_tokens)
        raise ValueError("that is all we wanted to know")
        yield

    async def timeline() -> None:
        server.engine.generate = generate
        with pytest.raises(ValueError, match="all we wanted"):
            await server.generate(list(range(prompt_tokens)), dict(asked), tagged(1))

    prompt = list(range(prompt_tokens))
    assert rollout.token_budget(prompt, asked, server.config) == budget
    asyncio.run(timeline())
    assert given == [budget]


def test_an_engine_that_has_no_ids_of_its_own_is_heard(tmp_path):
    """As vLLM before 0.12: the id the server gave is the only one."""
    attempt = rollout._attempts["old"] = rollout.Attempt(None, "replica0", 1, None)
    state = SimpleNamespace(request_id="old", stats=SimpleNamespace(first_token_ts=0.0))
    with rlinsight.recording(tmp_path / "t") as rec:
        call = SimpleNamespace(rec=rec, arg=lambda index, _: (state, "length")[index])
        rollout.heard_from_engine(call)
    assert rollout._attempts.pop("old").engine_finish == attempt.engine_finish == "length"


# -- topology ------------------------------------------------------------------------------


def declared(server, rec, node_rank: int, devices: str) -> None:
    rec.node, server.node_rank = f"n{node_rank}", node_rank
    call = SimpleNamespace(obj=server, rec=rec, error=None, arg=lambda *_: devices)
    replica.declare(call)


def test_a_replica_over_two_nodes_has_the_devices_of_both(server, tmp_path):
    """Each node has a server of its own; only the first has the engine."""
    server.config.max_num_seqs, server.config.data_parallel_size = 32, 1
    for node_rank, devices in ((1, "4,5"), (0, "0,1")):
        with rlinsight.recording(tmp_path / "t") as rec:
            declared(server, rec, node_rank, devices)
    (lane,) = rlinsight.open(tmp_path / "t").topology.replicas("standalone")
    assert (lane.id, lane.replica, lane.capacity, lane.node) == ("replica0", 0, 32, "n0")
    assert sorted(lane.devices) == ["n0/0", "n0/1", "n1/4", "n1/5"]
