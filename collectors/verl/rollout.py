"""Every generation attempt on every replica, and what happens to the replica around it.

Runs in the server process of a replica (one `vLLMHttpServer` actor each). One row of table
`requests` per call of `generate`: `submit_ns` is the arrival at the server, `version_start`
the version when the engine admitted it (a request parked at the gate of a weight sync gets
the new one), `version_end` the version when it ended, `first_token_ns` the engine's own time
of the first token. A marker `gate_wait` tells how long a parked or rejected request waited.

On the replica's lane: a span `paused` from the closing of the gate to its opening, within it
`weight_sync` while weights are received, `sleep` and `wake`; markers `abort` (with the number
of aborted requests) and `param_sync`, the replica's acknowledgement of a version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rlinsight.collectors.verl import engine, identity, replica
from rlinsight.collectors.verl.gauges import record_changes
from rlinsight.collectors.verl.hooks import Call, Hook
from rlinsight.trace.intervals import OpenRequest

_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"

#: What vLLM calls the end of a request -> table `requests`, column `finish`.
_FINISH = {"stop": "stop", "repetition": "stop", "length": "length", "abort": "abort"}


class Attempt:
    """A generation attempt in flight in this process."""

    __slots__ = ("budget", "engine_finish", "first_token_ns", "lane", "parked", "row", "version")

    def __init__(
        self, row: OpenRequest, lane: str, version: int | None, budget: int | None
    ) -> None:
        self.row = row
        self.lane = lane
        self.version = version
        self.budget = budget
        self.parked = False
        self.engine_finish: str | None = None
        self.first_token_ns: int | None = None


#: Attempts in flight by the request id the server was given.
_attempts: dict[str, Attempt] = {}


def submitted(call: Call) -> None:
    """A request arrives at the server."""
    server = call.obj
    if _is_dispatch(call):
        return
    engine_id = str(call.arg(2, "request_id"))
    known = identity.parse(engine_id)
    lane = replica.lane_of(server)
    row = call.rec.begin_request(
        request_id=known.request_id,
        lane=lane,
        submit_ns=call.start_ns,
        sample_uid=known.sample_uid,
        engine_kind=replica.engine_kind(server),
        prompt_tokens=_length(call.arg(0, "prompt_ids")),
        version_start=server.global_steps,
        attempt=known.attempt,
        validate=known.validate,
    )
    attempt = call.state = Attempt(row, lane, server.global_steps, None)
    _attempts[engine_id] = attempt
    attempt.budget = token_budget(
        call.arg(0, "prompt_ids"), call.arg(1, "sampling_params"), server.config
    )


def ended(call: Call) -> None:
    """The server answers a request, or fails it."""
    attempt: Attempt | None = call.state
    if attempt is None:
        return
    _attempts.pop(str(call.arg(2, "request_id")), None)
    columns: dict[str, Any] = {
        "version_start": attempt.version,
        "version_end": call.obj.global_steps,
    }
    if call.result is not None:
        columns["response_tokens"] = _length(call.result.token_ids)
    columns["finish"] = finish_of(attempt, call, columns.get("response_tokens"))
    first = attempt.first_token_ns
    # The engine's clock is another one where its process runs on another host.
    if first is not None and call.start_ns <= first <= (call.end_ns or 0):
        columns["first_token_ns"] = first
    attempt.row.end(end_ns=call.end_ns, **columns)
    _count_running(call, attempt.lane)


def finish_of(attempt: Attempt, call: Call, response_tokens: int | None) -> str | None:
    """Return `stop`, `length`, `abort` or `error`; None if verl names an end we do not know.

    verl reports `completed` for both `stop` and `length`; the engine tells them apart, and
    where it was not heard, an answer that used its whole token budget ended for its length.
    """
    if isinstance(call.error, asyncio.CancelledError):
        return "abort"
    if call.error is not None:
        return "error"
    reason = call.result.stop_reason
    if reason in ("aborted", "abort"):
        return "abort"
    if attempt.engine_finish in ("stop", "length"):
        return attempt.engine_finish
    if reason == "completed" and attempt.budget is not None and response_tokens is not None:
        return "length" if response_tokens >= attempt.budget else "stop"
    return _FINISH.get(str(reason), "error" if reason == "error" else None)


def token_budget(prompt_ids: Any, sampling_params: Any, config: Any) -> int | None:
    """Return the most tokens this attempt may answer, as the server will work it out.

    That is what the request asks for, else what `prompt_length + response_length` leaves beside
    the prompt but `response_length` at most; and never more than the engine's length leaves.

    Worked example: prompts of 16 and responses of 16 tokens on an engine of 64: after a turn of
    10 tokens, a prompt of 20 has 12 left; one of 60 that asks for 8 has 4.
    """
    prompt = _length(prompt_ids)
    if prompt is None:
        return None
    asked = _asked(sampling_params)
    if asked is None:
        asked = min(config.response_length, config.prompt_length + config.response_length - prompt)
    return int(max(1, min(asked, config.max_model_len - prompt)))


def _asked(sampling_params: Any) -> int | None:
    if isinstance(sampling_params, Mapping):
        for key in ("max_tokens", "max_new_tokens"):
            if sampling_params.get(key) is not None:
                return int(sampling_params[key])
    return None


def at_gate(call: Call) -> None:
    """A request reaches the admission gate, which may be closed for a weight sync."""
    attempt = _attempts.get(str(call.arg(0, "request_id")))
    if attempt is not None and call.obj._submission_paused:
        attempt.parked = True


def admitted(call: Call) -> None:
    """The gate lets a request through to the engine, or turns it away."""
    attempt = _attempts.get(str(call.arg(0, "request_id")))
    if attempt is None or call.end_ns is None or call.error is not None:
        return
    rejected = call.result is not None
    if not rejected:
        attempt.version = call.obj.global_steps
        _count_running(call, attempt.lane)
    if attempt.parked:
        call.rec.marker(
            "gate_wait",
            lane=attempt.lane,
            param_version=attempt.version,
            reason="rejected" if rejected else "parked",
            attrs={
                "request_id": attempt.row.columns["request_id"],
                "wait_ns": call.end_ns - call.start_ns,
            },
            ts_ns=call.end_ns,
        )
    attempt.parked = False


def heard_from_engine(call: Call) -> None:
    """The engine finished a request: it knows why, and when its first token came."""
    state = call.arg(0, "req_state")
    # Before vLLM had ids of its own, the server's was the only one.
    attempt = _attempts.get(str(getattr(state, "external_req_id", state.request_id)))
    if attempt is None:
        return
    attempt.engine_finish = str(call.arg(1, "finish_reason"))
    first_token_s = getattr(state.stats, "first_token_ts", 0.0)
    if first_token_s:  # 0 means that none came; the clock is the system's monotonic one
        attempt.first_token_ns = int(first_token_s * 1e9) + call.rec.offset_ns


def _is_dispatch(call: Call) -> bool:
    """Whether this call only hands over to a prefill and a decode server, each recorded itself."""
    server = call.obj
    role = getattr(server, "_disaggregation_role", "null")
    handed_over = call.arg(8, "kv_transfer_params") is None
    return role == "prefill" and bool(server._pd_decode_peers) and handed_over


def _count_running(call: Call, lane: str) -> None:
    """Count requests ourselves where the engine keeps no statistics."""
    if engine.stats_active:
        return
    mine = [attempt for attempt in _attempts.values() if attempt.lane == lane]
    parked = sum(attempt.parked for attempt in mine)
    counts = {"running_requests": len(mine) - parked, "waiting_requests": parked}
    record_changes(call.rec, lane, counts)


def _length(tokens: Any) -> int | None:
    return len(tokens) if hasattr(tokens, "__len__") else None


HOOKS = (
    Hook(
        name="rollout.generate",
        module=_SERVER,
        target="vLLMHttpServer.generate",
        records="requests: one row per generation attempt",
        enter=submitted,
        exit=ended,
        needs=("prompt_ids", "sampling_params", "request_id"),
    ),
    Hook(
        name="rollout.gate",
        module=_SERVER,
        target="vLLMHttpServer._park_until_admitted",
        records="requests.version_start at admission, markers gate_wait",
        enter=at_gate,
        exit=admitted,
        needs=("request_id",),
    ),
    Hook(
        name="rollout.engine_finish",
        module="vllm.v1.engine.output_processor",
        target="OutputProcessor._update_stats_from_finished",
        records="requests.first_token_ns and finish (stop or length)",
        enter=heard_from_engine,
        needs=("req_state", "finish_reason"),
    ),
    *replica.HOOKS,
)
