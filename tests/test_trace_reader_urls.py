"""A trace behind a URL reads as one on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_streams import rows_of, span, write_live, write_process

import rlinsight
from rlinsight.errors import TraceError


@pytest.fixture
def memory_url(tmp_path: Path):
    import fsspec

    fs = fsspec.filesystem("memory")
    yield "memory://trace"
    if fs.exists("/trace"):
        fs.rm("/trace", recursive=True)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_trace_behind_a_url_reads_the_same(
    tmp_path: Path, memory_url: str, compacted: bool
) -> None:
    import fsspec

    write_live(tmp_path, "spans", [span(0, 1), span(3, None)], [span(2, 3, lane="x")])
    write_process(tmp_path, notes={"mode": "sync"})
    (tmp_path / "live" / "spans-n0-9.arrows").touch()
    if compacted:
        rlinsight.compact(tmp_path)
    expected = rlinsight.open(tmp_path)
    fsspec.filesystem("memory").put(f"{tmp_path}/", "/trace/", recursive=True)
    for url in (memory_url, f"file://{tmp_path}"):
        trace = rlinsight.open(url)
        assert trace.spans.collect().equals(expected.spans.collect())
        assert trace.mode == "sync"
        assert [s.reason for s in trace.skipped] == ["empty"]
        assert trace.skipped[0].path == f"{url}/live/spans-n0-9.arrows"
        window = trace.table("spans", (2, 3)).collect()
        assert rows_of(window, "start_ns") == [(2,)]


def test_an_unknown_protocol_is_one_clear_sentence() -> None:
    with pytest.raises(TraceError, match="cannot open `nosuch://x`"):
        rlinsight.open("nosuch://x")
