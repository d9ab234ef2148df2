"""Any trace reads the same compacted, and a window of it as the filtered whole."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from live_streams import counter, frames, request, span, write_live

import rlinsight
from rlinsight.trace.compact import compact
from rlinsight.trace.schema import TABLES

_TIMES = st.integers(0, 50)
_SPANS = st.builds(
    span,
    _TIMES,
    st.none() | _TIMES,
    st.sampled_from(["update_actor", "reward"]),
    st.sampled_from(["trainer", "replica0"]),
    step=st.none() | st.integers(0, 3),
    attrs=st.none() | st.just({"reason": "drain"}),
)
_REQUESTS = st.builds(
    request,
    st.sampled_from("abc"),
    _TIMES,
    st.none() | _TIMES,
    attempt=st.none() | st.integers(0, 1),
    finish=st.none() | st.sampled_from(["stop", "length"]),
)
_SAMPLES = st.fixed_dictionaries(
    {"sample_uid": st.sampled_from("stuvw")},
    optional={
        "produced_ns": _TIMES,
        "consumed_ns": _TIMES,
        "reward": st.floats(0, 1),
        "fate": st.sampled_from(["trained", "aborted", "unconsumed", "lost"]),
    },
)
_COUNTERS = st.builds(counter, _TIMES, st.floats(allow_nan=False), st.sampled_from("xy"))
_TRACES = st.fixed_dictionaries(
    {
        table: st.lists(st.lists(rows, min_size=1, max_size=6), max_size=3)
        for table, rows in {
            "spans": _SPANS, "requests": _REQUESTS, "samples": _SAMPLES, "counters": _COUNTERS,
        }.items()
    }
)  # fmt: skip


def write_trace(folder: Path, trace: dict[str, list[list[dict[str, Any]]]]) -> None:
    """Write each list of rows as the stream of its own process, two batches each."""
    (folder / "live").mkdir(parents=True, exist_ok=True)
    for table, processes in trace.items():
        for pid, rows in enumerate(processes, 1):
            half = len(rows) // 2 or 1
            batches = [part for part in (rows[:half], rows[half:]) if part]
            write_live(folder, table, *batches, pid=pid)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(trace=_TRACES, memory_bytes=st.sampled_from([1 << 28, 2000, 1]), batch_rows=st.just(3))
def test_compaction_keeps_every_row_in_its_place(
    trace: dict[str, Any], memory_bytes: int, batch_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder, trace)
        before = frames(rlinsight.open(folder))
        compact(folder, memory_bytes=memory_bytes, batch_rows=batch_rows)
        after = rlinsight.open(folder)
        assert not after.is_live
        for table, frame in frames(after).items():
            assert frame.equals(before[table]), table  # type: ignore[index]


@settings(max_examples=60, deadline=None)
@given(trace=_TRACES, start=_TIMES, length=st.integers(0, 50))
def test_reading_a_window_equals_filtering(trace: dict[str, Any], start: int, length: int) -> None:
    window = (start, start + length)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder, trace)
        live = rlinsight.open(folder)
        expected = {table: live.table(table, window).collect() for table in TABLES}
        whole = live.spans.collect().rows()
        inside = [
            r for r in whole if r[0] < window[1] and (r[1] is None or r[1] > start or r[0] >= start)
        ]
        assert expected["spans"].rows() == inside
        compact(folder, batch_rows=2)
        trace_after = rlinsight.open(folder)
        for table in TABLES:
            assert trace_after.table(table, window).collect().equals(expected[table]), table
