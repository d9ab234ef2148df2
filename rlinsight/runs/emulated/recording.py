"""What a replica's own hooks record on a real engine, recorded by the emulated one itself.

The same tables, names and attributes as `rlinsight.collectors.verl.rollout`, `replica` and
`engine` write. Times come from the device model, so that a row is exact however late the
process was. Times in seconds are those of the run since its anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlinsight.collectors.verl.engine import Envelope, sample_interval_ns
from rlinsight.collectors.verl.gauges import record_changes
from rlinsight.collectors.verl.identity import parse
from rlinsight.trace.intervals import OpenRequest, OpenSpan
from rlinsight.trace.recorder import current
from rlinsight.trace.run_clock import CLOCK

if TYPE_CHECKING:
    from rlinsight.runs.emulated.host import Ask, Replicated

#: How long after the agent loop had begun it a request reached its replica (emulated s).
CONTROL_PLANE = "emulated_control_plane_s"


@dataclass(eq=False)
class Row:
    """A request in flight; `open` is None while nothing records."""

    max_tokens: int | None
    open: OpenRequest | None
    version: int | None
    first_token_s: float | None = None

    def budget(self, what: Replicated) -> int:
        """Return the most tokens it may answer."""
        return what.response_length if self.max_tokens is None else self.max_tokens


class Rows:
    """Writes the rows of one replica."""

    def __init__(self, rank: int, kind: str) -> None:
        self._lane, self._kind = f"replica{rank}", kind
        self._rec = current()
        self._usage = Envelope(sample_interval_ns())
        self._preemptions = 0
        self._pause: tuple[OpenSpan, int | None] | None = None

    def submitted(self, ask: Ask, version: int | None) -> Row:
        """A request arrives."""
        if self._rec is None:
            return Row(ask.max_tokens, None, version)
        known, now_ns = parse(ask.engine_id), self._rec.now_ns()
        if ask.sent_ns is not None and known.attempt == 1:
            late_s = (now_ns - ask.sent_ns) / 1e9
            self._rec.counter(CONTROL_PLANE, late_s, lane=self._lane, ts_ns=now_ns)
        request = self._rec.begin_request(
            request_id=known.request_id,
            lane=self._lane,
            submit_ns=now_ns,
            sample_uid=known.sample_uid,
            engine_kind=self._kind,
            prompt_tokens=ask.prompt_tokens,
            version_start=version,
            attempt=known.attempt,
            validate=known.validate,
        )
        return Row(ask.max_tokens, request, version)

    def ended(self, row: Row, at: float, tokens: int, finish: str, version: int | None) -> None:
        """A request has its answer."""
        if row.open is None:
            return
        columns: dict[str, Any] = {
            "version_start": row.version,
            "version_end": version,
            "response_tokens": tokens,
            "finish": finish,
        }
        first_s = at if row.first_token_s is None and finish != "abort" else row.first_token_s
        if first_s is not None:
            columns["first_token_ns"] = _ns(first_s)
        row.open.end(end_ns=_ns(at), **columns)

    def rejected(self, row: Row, version: int | None) -> tuple[int, str, int | None]:
        """A request was turned away at the gate; return the empty answer."""
        self.ended(row, CLOCK.monotonic_ns() / 1e9, 0, "abort", version)
        return 0, "aborted", version

    def gate_wait(self, row: Row, since_ns: int, reason: str, version: int | None) -> None:
        """A request waited at the gate, or was turned away there."""
        if self._rec is None or row.open is None:
            return
        now_ns = self._rec.now_ns()
        attrs = {"request_id": row.open.columns["request_id"], "wait_ns": now_ns - since_ns}
        self._mark("gate_wait", version, reason=reason, attrs=attrs, ts_ns=now_ns)

    def paused(self, version: int | None, *, rejects: bool) -> None:
        """The gate closes, and what runs is about to be aborted."""
        if self._rec is not None and self._pause is None:
            span = self._rec.begin("paused", lane=self._lane, attrs={"rejects": rejects})
            self._pause = (span, version)

    def aborted(self, version: int | None, requests: int, *, rejects: bool) -> None:
        """What ran was aborted."""
        attrs = {"aborted_requests": requests, "rejects": rejects}
        self._mark("abort", version, attrs=attrs)

    def resumed(self, version: int | None) -> None:
        """The gate opens; a version that changed meanwhile was the reason to pause."""
        if self._pause is None:
            return
        (span, before), self._pause = self._pause, None
        attrs = {"reason": "weight_sync"} if version != before else None
        span.end(param_version=version, attrs=attrs)

    def synced(self, version: int | None) -> None:
        """The replica acknowledges a version."""
        self._mark("param_sync", version)

    def span(self, activity: str, start_ns: int, attrs: Mapping[str, str]) -> None:
        """Something took from `start_ns` until now."""
        if self._rec is not None:
            end_ns = self._rec.now_ns()
            self._rec.span(activity, lane=self._lane, start_ns=start_ns, end_ns=end_ns, attrs=attrs)

    def preempted(self, at: float) -> None:
        """The KV cache was full and a request went back to the queue."""
        self._preemptions += 1
        self._count(at, {"preemptions": self._preemptions})

    def counts(self, at: float, running: int, waiting: int, usage: float | None) -> None:
        """Record what changed; `usage` of the KV cache is 0 to 1."""
        values = {
            "running_requests": running,
            "waiting_requests": waiting,
            "preemptions": self._preemptions,
        }
        self._count(at, values)
        if self._rec is None or usage is None:
            return
        points = self._usage.add(_ns(at), usage)
        for ts_ns, value in points + (self._usage.drain() if running == 0 else []):
            self._rec.counter("kv_cache_usage", value, lane=self._lane, ts_ns=ts_ns)

    def _count(self, at: float, values: Mapping[str, float]) -> None:
        if self._rec is not None:
            record_changes(self._rec, self._lane, values, ts_ns=_ns(at))

    def _mark(self, kind: str, version: int | None, **columns: Any) -> None:
        if self._rec is not None:
            self._rec.marker(kind, lane=self._lane, param_version=version, **columns)


def _ns(at: float) -> int:
    return round(at * 1e9) + CLOCK.offset_ns()
