"""Older schema versions are upgraded on read, newer ones refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from live_streams import frames, rows_of, stream_metadata

import rlinsight
from rlinsight.errors import TraceError
from rlinsight.trace import upgrade
from rlinsight.trace.schema import SCHEMA_VERSION, TABLES


def write_version_0(folder: Path) -> None:
    """A stream of a version that never was: `begin_ns` for `start_ns`, no `step`, no lane."""
    fields = [
        pa.field("begin_ns", pa.int64()),
        pa.field("end_ns", pa.int64()),
        pa.field("activity", pa.string()),
    ]
    schema = pa.schema(fields, stream_metadata("spans", "n0", 1, version=0))
    batch = pa.record_batch([[3, 9], [4, None], ["update_actor", "reward"]], schema=schema)
    (folder / "live").mkdir(parents=True)
    with pa.ipc.new_stream(str(folder / "live" / "spans-n0-1.arrows"), schema) as writer:
        writer.write_batch(batch)


def from_version_0(name: str, table: pa.Table) -> pa.Table:
    table = upgrade.renamed(table, {"begin_ns": "start_ns"})
    return upgrade.filled(table, "lane", "trainer", pa.string())


def test_an_older_version_is_upgraded_on_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(upgrade.UPGRADES, 0, from_version_0)
    write_version_0(tmp_path)
    spans = rlinsight.open(tmp_path).spans.collect()
    assert spans.columns == TABLES["spans"].names
    assert rows_of(spans, "start_ns", "end_ns", "activity", "lane", "step") == [
        (3, 4, "update_actor", "trainer", None),
        (9, None, "reward", "trainer", None),
    ]


def test_compaction_writes_the_current_version(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(upgrade.UPGRADES, 0, from_version_0)
        write_version_0(tmp_path)
        before = frames(rlinsight.open(tmp_path))
        rlinsight.compact(tmp_path)
    after = frames(rlinsight.open(tmp_path))
    assert all(after[name].equals(before[name]) for name in TABLES)


def test_a_version_without_upgrade_is_skipped_and_named(tmp_path: Path) -> None:
    write_version_0(tmp_path)
    (skipped,) = rlinsight.open(tmp_path).skipped
    assert skipped.reason == "schema version 0 can no longer be read"


def test_a_newer_stream_is_refused(tmp_path: Path) -> None:
    schema = TABLES["spans"].with_metadata(stream_metadata("spans", "n0", 1, SCHEMA_VERSION + 1))
    (tmp_path / "live").mkdir()
    with pa.ipc.new_stream(str(tmp_path / "live" / "spans-n0-1.arrows"), schema):
        pass
    with pytest.raises(TraceError, match=r"found version 2 in .*; upgrade rlinsight"):
        rlinsight.open(tmp_path)


def test_a_newer_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION + 1}))
    with pytest.raises(TraceError, match="upgrade rlinsight"):
        rlinsight.open(tmp_path)
