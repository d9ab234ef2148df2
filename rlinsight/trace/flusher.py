"""The background thread that carries rows from the buffers to the streams."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from rlinsight.trace.process_file import ProcessFile
from rlinsight.trace.stream import TableStream

if TYPE_CHECKING:
    from rlinsight.trace.buffer import TableBuffer
    from rlinsight.trace.schema import TableName
    from rlinsight.trace.writer import TraceWriter

_MAX_BATCH_ROWS = 1 << 15
#: How long the end of a process may wait for a disk that does not answer.
_PATIENCE_S = 10.0


class Flusher:
    """Flushes a writer's buffers every `interval_s` seconds, and earlier when one fills up."""

    def __init__(self, writer: TraceWriter, wake: threading.Event, interval_s: float) -> None:
        self._buffers = writer.buffers
        self._report = writer.report
        # Real time, also on emulated devices: it says whether a process lives.
        self._real_offset_ns = time.time_ns() - time.monotonic_ns()
        self._started_ns = self._now_ns()
        self._ended_ns: int | None = None
        folder = writer.path / "live"
        self._file = ProcessFile(folder, writer.node, writer.pid)
        self._streams: dict[TableName, TableStream] = {
            table: TableStream(folder, table, writer.node, writer.pid, writer.run_id)
            for table in writer.buffers
        }
        self._wake, self._interval_s = wake, interval_s
        self._lock = threading.Lock()
        self._closing = self._closed = False
        self._thread = threading.Thread(target=self._run, name="rlinsight-flush", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def flush(self) -> None:
        """Write buffered rows, open intervals and the process file; once closed, nothing."""
        with self._lock:
            if self._closed:
                return
            began = time.thread_time_ns()
            for table, buffer in self._buffers.items():
                self._flush_open(table, buffer)
                while len(buffer):
                    self._write(table, buffer, buffer.take(_MAX_BATCH_ROWS))
            self._report.flush_ns += time.thread_time_ns() - began
            self._write_process_file()

    def close(self) -> None:
        """Flush for the last time; later rows are counted as dropped, and nothing waits."""
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._thread.join(timeout=_PATIENCE_S)
        if self._thread.is_alive():
            self._report.complain("the disk does not answer; what is buffered is lost")
        self._closed = True
        for buffer in self._buffers.values():
            buffer.close()
        atexit.unregister(self.close)

    def abandon(self) -> None:
        """Write nothing more. In a forked child rows and files are still the parent's."""
        self._closing = True
        atexit.unregister(self.close)

    def _now_ns(self) -> int:
        return time.monotonic_ns() + self._real_offset_ns

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if not self._closing:
                self.flush()
        self._ended_ns = self._now_ns()
        self.flush()
        for stream in self._streams.values():
            stream.close()
        self._file.close()

    def _flush_open(self, table: TableName, buffer: TableBuffer) -> None:
        """Show each interval that is still open once; its closed row will cancel this one."""
        rows: list[Any] = []
        for interval in list(buffer.open):
            if interval not in buffer.shown:
                buffer.shown.add(interval)
                # A row that cannot be built is counted as dropped when it ends.
                with contextlib.suppress(TypeError):
                    rows.extend(interval.row(None))
        for interval in list(buffer.shown):
            if interval not in buffer.open:
                buffer.shown.discard(interval)
        if rows:
            self._write(table, buffer, rows)

    def _write(self, table: TableName, buffer: TableBuffer, flat: list[Any]) -> None:
        rows = len(flat) // buffer.width
        stream = self._streams[table]
        deleted = stream.deleted
        try:
            unstorable = stream.append(flat)
        except Exception as error:  # whatever it is, the rows that follow must still be written
            buffer.drop(rows)
            self._report.complain(f"rows are being dropped: {error}")
        else:
            buffer.drop(unstorable)
            buffer.written += rows - unstorable
            if unstorable:
                self._report.complain(f"table `{table}` was given rows that it cannot store")
        if stream.deleted > deleted:
            self._report.complain(f"a file of `{table}` was deleted: its rows are lost")

    def _write_process_file(self) -> None:
        content = self._report.to_dict() | {
            "started_ns": self._started_ns,
            "flushed_ns": self._now_ns(),
            "ended_ns": self._ended_ns,
            "rows": {table: buffer.written for table, buffer in self._buffers.items()},
            "dropped": {table: buffer.dropped for table, buffer in self._buffers.items()},
        }
        try:
            self._file.write(content)
        except Exception as error:  # a full disk, or a note that has no JSON form
            self._report.complain(f"cannot write the process file: {error}")
