"""Compaction of a large table, and reading a window of it.

    python benchmarks/window.py [--spans 50000000] [--folder DIR] [--json]

Makes that many spans as the live streams of several processes, compacts them, and reads a
window of 1 % of the time. Bytes read are counted by the kernel (`rchar` of /proc/self/io).
Each figure is taken in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import Figure, report

_ACTIVITIES = ("wait_samples", "old_log_prob", "advantage", "update_actor", "weight_sync", "tool")
_PROCESSES = 8
_BATCH_ROWS = 1 << 15
_EPOCH_NS = 1_750_000_000_000_000_000


def write_spans(folder: Path, count: int) -> None:
    """Write `count` spans over ten hours: most last milliseconds, one in 4096 half a minute."""
    from rlinsight.trace.schema import TABLES

    (folder / "live").mkdir(parents=True)
    for pid in range(1, _PROCESSES + 1):
        metadata = {
            "rlinsight.table": "spans", "rlinsight.schema_version": "1",
            "rlinsight.node": "n0", "rlinsight.pid": str(pid), "rlinsight.run_id": "bench",
        }  # fmt: skip
        schema = TABLES["spans"].with_metadata(metadata)
        options = pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
        path = str(folder / "live" / f"spans-n0-{pid}.arrows")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema, options=options) as out:
            _write_process(out, schema, pid, count // _PROCESSES)


def _write_process(
    out: pa.RecordBatchStreamWriter, schema: pa.Schema, pid: int, count: int
) -> None:
    random, now = np.random.default_rng(pid), _EPOCH_NS
    mean_gap = 36_000_000_000_000 // count
    names = pa.array(_ACTIVITIES)
    lane = pa.array([f"trainer/rank{pid}"])
    for first in range(0, count, _BATCH_ROWS):
        rows = min(_BATCH_ROWS, count - first)
        starts = now + np.cumsum(random.integers(1, 2 * mean_gap, rows))
        now = int(starts[-1])
        lasting = random.integers(1_000, 5_000_000, rows)
        lasting[:: 1 << 12] = 30_000_000_000
        step = np.full(rows, first // 100_000, np.int32)
        indices = pa.array(random.integers(0, len(names), rows).astype(np.int32))
        columns = [
            pa.array(starts),
            pa.array(starts + lasting),
            pa.DictionaryArray.from_arrays(indices, names),
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), lane),
            pa.array(step),
            pa.array(step // 4),
            pa.nulls(rows, schema.field("attrs").type),
        ]
        out.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


_COMPACT = """
import json, resource, sys
from rlinsight.trace.compact import compact
report = compact(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"peak": peak, **report.to_dict()["tables"]["spans"]}))
"""

_WINDOW = """
import json, sys, time
import polars as pl, rlinsight

def read_bytes():
    return int(open("/proc/self/io").read().split("rchar: ")[1].split()[0])

for part in (None, (0, 1)):  # imports read files too: they are not to be counted
    rlinsight.open(sys.argv[3]).table("spans", part).collect()
before, clock = read_bytes(), time.perf_counter()
trace = rlinsight.open(sys.argv[1])
first, last = trace.time_range
opened, at = read_bytes(), first + (last - first) * 6 // 10
window = (at, at + (last - first) // 100)
rows = trace.table("spans", window).select(pl.len()).collect().item() if sys.argv[2] == "one" \\
    else trace.table("spans", window).collect().height
print(json.dumps({"open": opened - before, "read": read_bytes() - before, "rows": rows,
                  "seconds": time.perf_counter() - clock}))
"""


def run(code: str, *arguments: str) -> dict[str, float]:
    output = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, stdout=subprocess.PIPE
    ).stdout
    figures: dict[str, float] = json.loads(output)
    return figures


def measure(folder: Path, spans: int) -> list[Figure]:
    small = folder.with_name("small")
    write_spans(small, 1000)
    run(_COMPACT, str(small))
    write_spans(folder, spans)
    clock = time.perf_counter()
    compacted = run(_COMPACT, str(folder))
    seconds = time.perf_counter() - clock
    size = (folder / "spans.arrow").stat().st_size
    whole, one = (run(_WINDOW, str(folder), which, str(small)) for which in ("all", "one"))
    return [
        Figure("spans", compacted["rows"], "rows", at_least=spans // 8 * 8),
        Figure("live files", compacted["bytes_in"] / 1e6, "MB"),
        Figure("compacted", size / 1e6, "MB"),
        Figure("compacted, per span", compacted["bytes_per_row"], "bytes", at_most=24),
        Figure("compaction", seconds, "s"),
        Figure("compaction, peak memory", compacted["peak"] / 1e9, "GB", at_most=2),
        Figure("opening reads", whole["open"] / 1e3, "kB"),
        Figure("rows in the window", whole["rows"] / compacted["rows"] * 100, "% of rows"),
        Figure("a 1 % window reads", whole["read"] / size * 100, "% of bytes", at_most=2),
        Figure("a 1 % window takes", whole["seconds"], "s"),
        Figure("counting its rows reads", one["read"] / size * 100, "% of bytes", at_most=2),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=50_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        report("window", measure(Path(name) / "trace", options.spans))


if __name__ == "__main__":
    main()
