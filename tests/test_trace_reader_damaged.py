"""Files that cannot be used are named, and the rest is read."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from live_streams import rows_of, span, stream, stream_metadata, write_live

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace.compact import compact
from rlinsight.trace.schema import TABLES


def test_what_cannot_be_used_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write_live(tmp_path, "spans", [span(0, 1)])
    live = tmp_path / "live"
    (live / "spans-n0-2.arrows").touch()
    (live / "spans-n0-3.arrows").write_bytes(b"\xff\xff\xff\xff\x10")
    (live / "spans-n0-4.arrows").write_bytes(b"GIF89a, not an Arrow stream")
    (live / "frames-n0-5.arrows").write_bytes(b"x")
    (live / "process-n0-6.json").write_text('{"node": "n0"')
    (live / "core.1234").write_bytes(b"x")
    (tmp_path / "manifest.json").write_text("{]")
    (tmp_path / "model.safetensors").write_bytes(b"x")
    (tmp_path / "console.log").write_text("step 1")
    trace = rlinsight.open(tmp_path)
    assert rows_of(trace.spans.collect(), "start_ns", "end_ns") == [(0, 1)]
    reasons = {Path(skipped.path).name: skipped.reason for skipped in trace.skipped}
    assert reasons.keys() == {
        "spans-n0-2.arrows", "spans-n0-3.arrows", "spans-n0-4.arrows", "frames-n0-5.arrows",
        "process-n0-6.json", "core.1234", "manifest.json", "model.safetensors",
    }  # fmt: skip
    assert reasons["spans-n0-2.arrows"] == "empty"
    assert reasons["spans-n0-3.arrows"] == "cut before its first batch"
    assert "not an Arrow stream" in reasons["spans-n0-4.arrows"]
    assert reasons["manifest.json"].startswith("damaged")


@pytest.mark.parametrize("compacted", [True, False])
def test_a_table_that_was_written_and_is_gone_is_named(tmp_path: Path, compacted: bool) -> None:
    with rlinsight.TraceWriter(tmp_path) as writer:
        writer.span("update_actor", lane="trainer", start_ns=0, end_ns=1)
        writer.counter("queue_depth", 1.0, lane="trainer", ts_ns=1)
    if compacted:
        compact(tmp_path)
    for path in tmp_path.rglob("spans*.arrow*"):
        path.unlink()
    (gone,) = rlinsight.open(tmp_path).skipped
    assert Path(gone.path).name == "spans.arrow"
    assert gone.reason == "not there, although 1 rows of `spans` were written"


@pytest.mark.parametrize("read_first", [True, False])
def test_a_torn_tail_is_named_whether_or_not_it_was_read(tmp_path: Path, read_first: bool) -> None:
    path = write_live(tmp_path, "spans", [span(0, 1)], [span(2, 3)])
    path.write_bytes(path.read_bytes()[:-7])
    trace = rlinsight.open(tmp_path)
    if read_first:
        assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
    (skipped,) = trace.skipped
    assert skipped.path == str(path)
    assert "cut or is being written" in skipped.reason


def test_a_batch_with_scrambled_strings_ends_the_reading_of_its_file(tmp_path: Path) -> None:
    path = write_live(tmp_path, "spans", [span(0, 1)], [span(2, 3, lane="rollouter")])
    path.write_bytes(path.read_bytes().replace(b"rollouter", b"rollou\xff\xfe\xfd"))
    trace = rlinsight.open(tmp_path)
    assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
    (skipped,) = trace.skipped
    assert "damaged" in skipped.reason


class AsOrdinaryUser:
    """Give up root for a moment, since nothing is unreadable to root."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders

    def __enter__(self) -> None:
        if os.geteuid() != 0:
            return
        for folder in (*self.folders, *self.folders[0].parents):
            if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/pytest"):
                folder.chmod(0o755)
        os.seteuid(65534)

    def __exit__(self, *_: object) -> None:
        if os.getuid() == 0:
            os.seteuid(0)


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    readable = write_live(tmp_path, "spans", [span(0, 1)], pid=1)
    secret = write_live(tmp_path, "spans", [span(2, 3)], pid=2)
    secret.chmod(0)
    with AsOrdinaryUser(tmp_path, readable.parent):
        trace = rlinsight.open(tmp_path)
        assert rows_of(trace.spans.collect(), "start_ns") == [(0,)]
        assert [(s.path, s.reason) for s in trace.skipped] == [
            (str(secret), "cannot be read: Permission denied")
        ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "found nothing at"),
        (lambda path: path.mkdir(), "found none of them"),
        (lambda path: path.write_text("x"), "found the file"),
    ],
    ids=["absent", "empty", "a file"],
)
def test_no_trace_is_one_clear_sentence(tmp_path: Path, make, message: str) -> None:
    path = tmp_path / "trace"
    make(path)
    with pytest.raises(TraceError, match=message) as error:
        rlinsight.open(path)
    assert str(path) in str(error.value)


HOSTILE = ["", "a\nb", "nul\0nul", "🐍", "\u202ertl", "'; drop table spans; --", "x" * 1_000_000]


def test_hostile_strings_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [
        span(i, i + 1, activity=f"other:{text}", lane=text, attrs={text: text})
        for i, text in enumerate(HOSTILE)
    ]
    write_live(tmp_path, "spans", rows)
    spans = rlinsight.open(tmp_path).spans.collect()
    assert spans["lane"].to_list() == HOSTILE
    assert spans["attrs"].to_list() == [[{"key": text, "value": text}] for text in HOSTILE]


def test_a_lane_name_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    data, _ = stream("spans", [[span(0, 1)]], node="../../etc", pid=1)
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "spans-n0-1.arrows").write_bytes(data)
    assert rlinsight.open(tmp_path).spans.collect().height == 1


def test_a_required_column_that_holds_null_is_no_row(tmp_path: Path) -> None:
    fields = [field.with_nullable(True) for field in TABLES["counters"]]
    schema = pa.schema(fields, stream_metadata("counters", "n0", 1))
    batch = pa.record_batch(
        [pa.array([1]), pa.array([None], fields[1].type), pa.array(["q"]).dictionary_encode(),
         pa.array([1.0])],
        schema=schema,
    )  # fmt: skip
    (tmp_path / "live").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "live" / "counters-n0-1.arrows"), schema) as writer:
        writer.write_batch(batch)
    trace = rlinsight.open(tmp_path)
    assert trace.counters.collect().height == 0
    (skipped,) = trace.skipped
    assert "column `name` holds null" in skipped.reason
