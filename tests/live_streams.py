"""Live trace folders for tests, written stream by stream so that every byte is known."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from rlinsight.trace.encode import Encoder
from rlinsight.trace.reader import Trace
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES, TableName

Row = dict[str, Any]


def stream(
    table: TableName,
    batches: Sequence[Sequence[Row]],
    *,
    node: str = "n0",
    pid: int = 1,
    closed: bool = False,
    compression: str | None = None,
) -> tuple[bytes, list[int]]:
    """Return the bytes of a live stream, and where each of its batches ends."""
    encoder, sink, ends = Encoder(table), io.BytesIO(), []
    options = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    schema = encoder.schema.with_metadata(stream_metadata(table, node, pid))
    writer = pa.ipc.new_stream(sink, schema, options=options)
    for rows in batches:
        flat = [row.get(name) for row in rows for name in encoder.schema.names]
        batch, lost = encoder.encode(flat)
        assert lost == 0
        writer.write_batch(batch)
        ends.append(sink.tell())
    if closed:
        writer.close()
    return sink.getvalue(), ends


def stream_metadata(
    table: str, node: str, pid: int, version: int = SCHEMA_VERSION
) -> dict[str, str]:
    return {
        "rlinsight.table": table,
        "rlinsight.schema_version": str(version),
        "rlinsight.node": node,
        "rlinsight.pid": str(pid),
        "rlinsight.run_id": "test",
    }


def write_live(
    folder: Path,
    table: TableName,
    *batches: Sequence[Row],
    node: str = "n0",
    pid: int = 1,
    **options: Any,
) -> Path:
    """Write the stream of one process and one table, one batch per argument."""
    path = folder / "live" / f"{table}-{node}-{pid}.arrows"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream(table, batches, node=node, pid=pid, **options)[0])
    return path


def write_process(folder: Path, *, node: str = "n0", pid: int = 1, **content: Any) -> Path:
    """Write a process file."""
    path = folder / "live" / f"process-{node}-{pid}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"node": node, "pid": pid, "started_ns": 1, **content}))
    return path


def span(
    start: int, end: int | None, activity: str = "update_actor", lane: str = "trainer", **rest: Any
) -> Row:
    return {"start_ns": start, "end_ns": end, "activity": activity, "lane": lane, **rest}


def request(rid: str, submit: int, end: int | None, lane: str = "replica0", **rest: Any) -> Row:
    return {"request_id": rid, "submit_ns": submit, "end_ns": end, "lane": lane, **rest}


def counter(ts: int, value: float, name: str = "queue_depth", lane: str = "queue") -> Row:
    return {"ts_ns": ts, "name": name, "lane": lane, "value": value}


def frames(trace: Trace) -> dict[str, pl.DataFrame]:
    """Every table of a trace, in memory."""
    return {name: trace.table(name).collect() for name in TABLES}


def rows_of(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.select(columns).rows()


def two_processes(folder: Path) -> None:
    """Write a trace of two processes, one of which has ended, and one sample that both tell of."""
    write_live(folder, "spans", [span(5, None), span(0, 4)], [span(5, 9)], pid=1)
    write_live(folder, "spans", [span(1, 2, lane="rollouter")], pid=2, closed=True)
    write_live(folder, "samples", [{"sample_uid": "s", "produced_ns": 1}], pid=2)
    write_live(folder, "samples", [{"sample_uid": "s", "fate": "trained"}], pid=1)
    write_process(folder, pid=1, ended_ns=9, hooks={}, dropped={"spans": 1})
    write_process(folder, pid=2, dropped={"spans": 2}, notes={"mode": "sync"})
