"""A trace that is being written, followed: each poll reads only what has been appended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rlinsight.runs.live_state import QUEUE_COUNTERS, STEP_METRICS, Event, LiveState
from rlinsight.trace.process import Process, read_process
from rlinsight.trace.run_clock import RealClock, RunClock
from rlinsight.trace.streams_in import LiveStream

#: Tables whose rows are events; a counter is sampled whether or not anything happens.
_EVENT_TABLES: Final = ("spans", "requests", "samples", "metrics", "markers")
#: What a program records about itself; the sampler of devices writes counters and markers.
_RECORD_TABLES: Final = ("spans", "requests", "samples", "metrics")
_TIMES: Final = {"spans": "start_ns", "requests": "submit_ns", "markers": "ts_ns"}
_REQUEST_COLUMNS: Final = ["request_id", "attempt", "lane", "submit_ns", "end_ns"]


@dataclass
class _ProcessFile:
    changed_ns: int
    process: Process


class _Followed:
    """One stream, and how far it was read. It is open only while it is read.

    A large run has thousands of streams, more than a process may hold open.
    """

    def __init__(self, path: Path) -> None:
        self.table = path.name.split("-", 1)[0]
        self.given_up = False
        self._path = path
        self._size = 0
        self._stream = LiveStream(lambda: path.open("rb"))

    def new_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what has become complete since the last call. Raises OSError."""
        size = self._path.stat().st_size
        if size != self._size and not self.given_up:
            yield from self._stream.batches()
            self._size = size

    @property
    def process(self) -> tuple[str, int]:
        """Node and pid of the process that writes the stream; to be asked after a batch."""
        known = self._stream.metadata
        return known.get("rlinsight.node", ""), int(known.get("rlinsight.pid", "0"))


class LiveTrace:
    """Follows the files of `<trace>/live`."""

    def __init__(self, trace: Path, clock: RunClock | None = None) -> None:
        self.state = LiveState(clock=clock or RealClock())
        self._folder = trace / "live"
        self._streams: dict[str, _Followed] = {}
        self._processes: dict[str, _ProcessFile] = {}

    def poll(self) -> int:
        """Read what is new; return the number of new events (counters are none)."""
        self._look_for_files()
        events = 0
        for followed in self._streams.values():
            try:
                for batch in followed.new_batches():
                    events += self._take(followed.table, batch, followed.process)
            except OSError:
                continue  # a file system that does not answer may answer the next poll
            except Exception:  # whatever lies in that file, the training must go on
                followed.given_up = True
        self.state.processes = [entry.process for entry in self._processes.values()]
        return events

    def _look_for_files(self) -> None:
        try:
            paths = list(self._folder.iterdir())
        except OSError:
            return
        for path in paths:
            if path.suffix == ".arrows" and path.name not in self._streams:
                self._streams[path.name] = _Followed(path)
            elif path.suffix == ".json":
                self._read_process(path)

    def _read_process(self, path: Path) -> None:
        known = self._processes.get(path.name)
        try:
            changed_ns = path.stat().st_mtime_ns
            if known is None or known.changed_ns != changed_ns:
                process = read_process(path.read_bytes())
                self._processes[path.name] = _ProcessFile(changed_ns, process)
        except (OSError, ValueError):
            return  # being rewritten; the next poll sees it whole

    def _take(self, table: str, batch: pa.RecordBatch, process: tuple[str, int]) -> int:
        if table in {"spans", "requests", "markers"}:
            for lane, index in _last_row_per_lane(batch, _TIMES[table]):
                self.state.note(lane, _event(table, batch, index), process)
        if table == "spans":
            self.state.take_waits(_rows(batch, _is_one_of(batch["activity"], ("wait_samples",))))
            self.state.take_steps(_rows(batch, _is_one_of(batch["activity"], ("step",))))
        elif table == "requests":
            self.state.take_requests(_rows(batch.select(_REQUEST_COLUMNS)))
        elif table == "metrics":
            self.state.take_metrics(_rows(batch, _is_one_of(batch["key"], STEP_METRICS)))
        elif table == "counters":
            self.state.take_counters(_rows(batch, _is_one_of(batch["name"], QUEUE_COUNTERS)))
        if table in _RECORD_TABLES:
            self.state.records += batch.num_rows
        return batch.num_rows if table in _EVENT_TABLES else 0


def _is_one_of(column: pa.DictionaryArray, names: Sequence[str]) -> pa.BooleanArray:
    return pc.is_in(column.dictionary_decode(), value_set=pa.array(names))


def _rows(batch: pa.RecordBatch, where: pa.BooleanArray | None = None) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = (batch if where is None else batch.filter(where)).to_pylist()
    return rows


def _last_row_per_lane(batch: pa.RecordBatch, time: str) -> Iterable[tuple[str, int]]:
    lanes = batch["lane"].dictionary_decode().to_pylist()
    times = batch[time].to_pylist()
    last: dict[str, int] = {}
    for index, (lane, at) in enumerate(zip(lanes, times, strict=True)):
        if lane is not None and (lane not in last or at >= times[last[lane]]):
            last[lane] = index
    return last.items()


def _event(table: str, batch: pa.RecordBatch, index: int) -> Event:
    row = batch.slice(index, 1).to_pylist()[0]
    if table == "requests":
        name, end_ns = "generation request", row["end_ns"]
        return Event(row["submit_ns"], end_ns, name, None)
    if table == "spans":
        return Event(row["start_ns"], row["end_ns"], row["activity"], row["step"])
    return Event(row["ts_ns"], row["ts_ns"], row["kind"], None)
