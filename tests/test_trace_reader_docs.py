"""docs/trace.md names everything that is in a trace."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import rlinsight
from rlinsight.trace import schema
from rlinsight.trace.clock import MAX_RESIDUAL_NS, OffsetEstimate
from rlinsight.trace.compact import BATCH_ROWS
from rlinsight.trace.compacted import Source
from rlinsight.trace.findings import FINDING_KINDS, MAX_HOOK_SHARE
from rlinsight.trace.index import BatchTimes
from rlinsight.trace.manifest import Hook, Manifest
from rlinsight.trace.process import HookState, Process
from rlinsight.trace.topology import Device, Lane
from rlinsight.trace.writer import TraceWriter

DOCS = Path(__file__).parent.parent / "docs"
TEXT = (DOCS / "trace.md").read_text()


def section(heading: str) -> set[str]:
    """The words in backticks between a heading and the next one of its rank or above."""
    match = re.search(rf"^(#+) {re.escape(heading)}$", TEXT, re.MULTILINE)
    assert match, f"docs/trace.md has no section `{heading}`"
    rest = TEXT[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return set(re.findall(r"`([^`\n]+)`", rest[: end.start() if end else None]))


def fields(*classes: type) -> set[str]:
    return {field.name for cls in classes for field in dataclasses.fields(cls)}


@pytest.mark.parametrize("table", schema.TABLES)
def test_every_table_and_column_is_documented(table: schema.TableName) -> None:
    assert set(schema.TABLES[table].names) <= section(table)


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Activities", schema.ACTIVITIES | schema.PAUSE_REASONS),
        ("requests", schema.FINISH_KINDS | schema.ENGINE_KINDS),
        ("samples", schema.FATES),
        ("Manifest", set(Manifest().to_dict()) | fields(Hook, Device, Lane)),
        ("Process files", fields(Process, HookState)),
        ("Clocks", fields(OffsetEstimate)),
        ("Compacted tables", fields(Source, BatchTimes)),
        ("Validation", set(FINDING_KINDS)),
    ],
)
def test_every_name_is_documented(heading: str, names: set[str]) -> None:
    assert names <= section(heading)


@pytest.mark.parametrize(("table", "column"), [("counters", "name"), ("markers", "kind")])
def test_what_the_recordings_hold_is_documented(table: schema.TableName, column: str) -> None:
    pages = "".join((DOCS / name).read_text() for name in ("trace.md", "hardware.md", "run.md"))
    traces = [path.parent for path in DOCS.parent.glob("sample_traces/**/manifest.json")]
    assert traces
    rows = [rlinsight.open(path).table(table).select(column).unique().collect() for path in traces]
    names = {name for frame in rows for name in frame[column]}
    assert {name for name in names if f"`{name}`" not in pages} == set()


def test_what_the_writer_puts_into_its_process_file_is_documented(tmp_path: Path) -> None:
    import json

    with TraceWriter(tmp_path) as writer:
        writer.counter("queue_depth", 1.0)
    (path,) = tmp_path.glob("live/process-*.json")
    assert set(json.loads(path.read_text())) <= section("Process files")


def test_stream_metadata_is_documented(tmp_path: Path) -> None:
    import pyarrow as pa

    with TraceWriter(tmp_path) as writer:
        writer.counter("queue_depth", 1.0)
    (path,) = tmp_path.glob("live/counters-*.arrows")
    with pa.ipc.open_stream(str(path)) as stream:
        keys = {key.decode() for key in stream.schema.metadata}
    assert keys <= section("Live files")


def test_limits_are_those_of_the_code() -> None:
    assert f"**{MAX_RESIDUAL_NS / 1e6:g} ms**" in TEXT
    assert f"{MAX_HOOK_SHARE:.1%}".replace("%", " %") in TEXT
    assert f"Batches hold {BATCH_ROWS} rows" in TEXT
    assert f"version {schema.SCHEMA_VERSION}\n" in TEXT
