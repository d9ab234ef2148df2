"""Writing a trace: safe inside a training process, usable by importers and tests.

Only the standard library and pyarrow are imported here.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rlinsight.trace.buffer import TableBuffer
from rlinsight.trace.encode import row_of
from rlinsight.trace.flusher import Flusher
from rlinsight.trace.intervals import OpenRequest, OpenSpan
from rlinsight.trace.run_clock import CLOCK, monotonic_ns
from rlinsight.trace.schema import TABLES, TableName
from rlinsight.trace.self_report import SelfReport
from rlinsight.trace.topology import Device, Lane, Topology

HookStatus = Literal["installed", "skipped", "failed"]

_live_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()


def node_name() -> str:
    """Return this node's name as used in file names: `RLINSIGHT_NODE`, else the host name."""
    name = os.environ.get("RLINSIGHT_NODE") or socket.gethostname()
    return re.sub(r"[^A-Za-z0-9_.]", "_", name) or "node"


class TraceWriter:
    """Records into the trace folder `path`, from any thread or coroutine.

    Rows go to a bounded buffer; a background thread appends them to one Arrow IPC stream
    per table every `flush_interval_s` seconds. With `on_full="drop"` no call ever waits: a
    row that finds the buffer full, or a write that fails, is dropped and counted. With
    `on_full="block"`, meant for importers, a full buffer makes the caller wait.

    A value that does not fit its column drops its row, counted the same way. No recording
    method raises. Times are int64 nanoseconds since the Unix epoch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mode: str | None = None,
        topology: Topology | None = None,
        config: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        node: str | None = None,
        lane: str | None = None,
        on_full: Literal["block", "drop"] = "block",
        max_buffered_rows: int = 1 << 18,
        flush_interval_s: float = 0.5,
    ) -> None:
        self.path = Path(path).absolute()
        self.run_id = run_id or os.environ.get("RLINSIGHT_RUN_ID") or self.path.name
        self.node = node or node_name()
        self._lane = lane
        self._on_full: Literal["block", "drop"] = on_full
        self._max_rows = max_buffered_rows
        self._flush_interval_s = flush_interval_s
        notes = {"mode": mode, "config": dict(config) if config is not None else None}
        self.report = SelfReport({k: v for k, v in notes.items() if v is not None}, topology)
        self._start()
        _live_writers.add(self)

    def _start(self) -> None:
        self.pid = os.getpid()
        # One anchor: a step of the wall clock cannot make a span negative.
        self.offset_ns = CLOCK.offset_ns()
        self.lane = self._lane or f"{self.node}/{self.pid}"
        wake, block = threading.Event(), self._on_full == "block"
        self.buffers: dict[TableName, TableBuffer] = {
            table: TableBuffer(len(schema), self._max_rows, wake, block=block)
            for table, schema in TABLES.items()
        }
        self.spans, self.requests = self.buffers["spans"], self.buffers["requests"]
        self.report.start(self.run_id, self.node, self.pid, self.offset_ns)
        self._flusher = Flusher(self, wake, self._flush_interval_s)

    def now_ns(self) -> int:
        """Return the time of this process: its wall-clock anchor plus the monotonic clock."""
        return monotonic_ns() + self.offset_ns

    # -- intervals ---------------------------------------------------------------------

    def span(
        self,
        activity: str,
        *,
        start_ns: int,
        end_ns: int | None,
        lane: str | None = None,
        step: int | None = None,
        param_version: int | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> None:
        """Record an interval with explicit times; `end_ns` None records it as open."""
        row = (start_ns, end_ns, activity, lane or self.lane, step, param_version, attrs)
        self.spans.append(row)

    def begin(
        self,
        activity: str,
        *,
        start_ns: int | None = None,
        lane: str | None = None,
        step: int | None = None,
        param_version: int | None = None,
        attrs: Mapping[str, object] | None = None,
    ) -> OpenSpan:
        """Begin an interval; its `end` closes it. Until then a crash leaves it open."""
        span = OpenSpan()
        span.writer, span.activity, span.lane = self, activity, lane or self.lane
        span.step, span.param_version = step, param_version
        span.attrs = dict(attrs) if attrs else None
        return span.begun(start_ns)

    def begin_request(
        self, *, request_id: str, lane: str, submit_ns: int | None = None, **columns: Any
    ) -> OpenRequest:
        """Begin a generation attempt; its `end` closes it. Columns as in `request`."""
        submit_ns = self.now_ns() if submit_ns is None else submit_ns
        known = {"request_id": request_id, "lane": lane, "submit_ns": submit_ns}
        return OpenRequest(self, {**columns, **known})

    # -- rows --------------------------------------------------------------------------

    def request(self, **columns: Any) -> None:
        """Record one generation attempt; the columns are those of table `requests`.

        A column that the table does not have drops the row, which is counted and said.
        """
        self._append("requests", columns)

    def sample(self, **columns: Any) -> None:
        """Record one trajectory; the columns are those of table `samples`.

        The reader merges the rows of one `sample_uid`. An unknown column drops the row, as above.
        """
        self._append("samples", columns)

    def counter(
        self, name: str, value: float, *, lane: str | None = None, ts_ns: int | None = None
    ) -> None:
        """Record the value of a gauge now, or at `ts_ns`."""
        ts_ns = monotonic_ns() + self.offset_ns if ts_ns is None else ts_ns
        self.buffers["counters"].append((ts_ns, name, lane or self.lane, value))

    def metric(
        self, key: str, value: float, *, step: int | None = None, ts_ns: int | None = None
    ) -> None:
        """Record a metric as the framework reported it."""
        ts_ns = self.now_ns() if ts_ns is None else ts_ns
        self.buffers["metrics"].append((ts_ns, step, key, value))

    def marker(
        self,
        kind: str,
        *,
        lane: str | None = None,
        param_version: int | None = None,
        reason: str | None = None,
        attrs: Mapping[str, object] | None = None,
        ts_ns: int | None = None,
    ) -> None:
        """Record a point event, such as `param_sync` or `abort`."""
        ts_ns = self.now_ns() if ts_ns is None else ts_ns
        row = (ts_ns, kind, lane or self.lane, param_version, reason, attrs)
        self.buffers["markers"].append(row)

    def request_row(self, **columns: Any) -> tuple[Any, ...]:
        """Return the row of table `requests` for these columns (unknown names are refused)."""
        return row_of("requests", columns)

    def _append(self, table: TableName, columns: dict[str, Any]) -> None:
        try:
            row = row_of(table, columns)
        except TypeError as error:
            self.buffers[table].drop(1)
            self.report.complain(str(error))
        else:
            self.buffers[table].append(row)

    # -- what this process says about itself -------------------------------------------

    def declare_lane(self, lane: Lane) -> None:
        """Add `lane` to the topology; what is already known of it is completed."""
        self.report.declare(Topology(lanes=(lane,)))

    def declare_device(self, device: Device) -> None:
        """Add `device` to the topology."""
        self.report.declare(Topology(devices=(device,)))

    def note(self, key: str, value: Any) -> None:
        """Store a JSON value for the manifest, such as `config` or `packages`."""
        self.report.note(key, value)

    def hook(self, name: str, status: HookStatus, reason: str | None = None) -> None:
        """Store what became of a hook; a failure adds to its error count."""
        self.report.hook(name, status, reason)

    def add_hook_time(self, ns: int) -> None:
        """Account `ns` nanoseconds spent inside hooks."""
        self.report.hook_ns += ns

    # -- life --------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is buffered now, in the calling thread."""
        self._flusher.flush()

    def close(self) -> None:
        """Write everything, mark the process as ended, and stop the background thread."""
        _live_writers.discard(self)
        self._flusher.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def restart_after_fork(self) -> None:
        """Start over in a forked child: its rows are its own, in files of its own."""
        self._flusher.abandon()
        self.report = self.report.for_child()
        self._start()


def _restart_writers() -> None:
    for writer in list(_live_writers):
        writer.restart_after_fork()


os.register_at_fork(after_in_child=_restart_writers)
