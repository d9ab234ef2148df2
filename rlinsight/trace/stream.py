"""One append-only Arrow IPC stream: the file of one process and one table."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from rlinsight.trace.encode import Encoder
from rlinsight.trace.schema import SCHEMA_VERSION, TableName


class TableStream:
    """Appends rows of one table to `live/<table>-<node>-<pid>.arrows`.

    A write that fails leaves a file whose complete batches stay readable; the next write
    goes to a new file, since nothing can be appended behind a torn message. So it does where
    somebody deleted the file; `deleted` is how many were.
    """

    def __init__(self, folder: Path, table: TableName, node: str, pid: int, run_id: str) -> None:
        self._folder = folder
        self._table: TableName = table
        self._stem = f"{table}-{node}-{pid}"
        self._metadata = {
            "rlinsight.table": table,
            "rlinsight.schema_version": str(SCHEMA_VERSION),
            "rlinsight.node": node,
            "rlinsight.pid": str(pid),
            "rlinsight.run_id": run_id,
        }
        self._encoder = Encoder(table)
        self._sink: pa.OSFile | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._path: Path | None = None
        self._complete_bytes = 0
        self.deleted = 0

    def append(self, flat: list[Any]) -> int:
        """Write the rows flattened in `flat` as one batch; return how many cannot be stored.

        Raises OSError when the file cannot be written; none of the rows is stored then.
        """
        batch, unstorable = self._encoder.encode(flat)
        if batch.num_rows == 0:
            return unstorable
        try:
            if self._path is not None and not self._path.exists():
                self.deleted += 1
                self._abandon()
            writer, sink = self._open()
            writer.write_batch(batch)
            self._complete_bytes = sink.tell()
        except (OSError, pa.ArrowException) as error:
            self._abandon()
            raise OSError(f"cannot append to {self._folder / self._stem}: {error}") from error
        return unstorable

    def close(self) -> None:
        """Write the end-of-stream mark; a disk that is full by now costs only that mark."""
        try:
            if self._writer is not None:
                self._writer.close()
            if self._sink is not None:
                self._sink.close()
        except (OSError, pa.ArrowException):
            self._abandon()
        self._writer = self._sink = None

    def _open(self) -> tuple[pa.RecordBatchStreamWriter, pa.OSFile]:
        if self._writer is None or self._sink is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path, self._complete_bytes = self._unused_path(), 0
            self._sink = pa.OSFile(str(self._path), "wb")
            options = pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
            schema = self._encoder.schema.with_metadata(self._metadata)
            self._writer = pa.ipc.new_stream(self._sink, schema, options=options)
        return self._writer, self._sink

    def _unused_path(self) -> Path:
        """Claim the first free name: a process may record twice, and pids are reused."""
        number = 1
        while True:
            suffix = "" if number == 1 else f"-{number}"
            path = self._folder / f"{self._stem}{suffix}.arrows"
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                number += 1
            else:
                return path

    def _abandon(self) -> None:
        """Leave a file of complete batches behind, or none: a full disk fails every flush."""
        sink, path = self._sink, self._path
        self._writer = self._sink = self._path = None
        with contextlib.suppress(OSError, pa.ArrowException):
            if sink is not None:
                sink.close()
        with contextlib.suppress(OSError):
            if path is not None and self._complete_bytes:
                os.truncate(path, self._complete_bytes)
            elif path is not None:
                path.unlink()
