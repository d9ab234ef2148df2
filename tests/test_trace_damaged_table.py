"""A compacted table of which a part is damaged: the rest is used, and what is not is named."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_streams import rows_of, span, write_live
from typer.testing import CliRunner

import rlinsight
from rlinsight.cli import app
from rlinsight.errors import TraceError
from rlinsight.trace import reader
from rlinsight.trace.compact import compact
from rlinsight.trace.streams_in import RECORD_BATCH, read_message
from rlinsight.trace.validate import validate

ROWS, BATCH = 12, 4
SAMPLE = Path(__file__).parent.parent / "sample_traces" / "fully_async"


def table(folder: Path, rows: int = ROWS, batch: int = BATCH) -> Path:
    """Compact `rows` spans, which start at 0, 1, ... ns, in batches of `batch` rows."""
    attrs = [{"reason": f"{n * 7919:x}"} for n in range(rows)]
    write_live(folder, "spans", [span(n, n + 1, attrs=attrs[n]) for n in range(rows)])
    compact(folder, batch_rows=batch)
    return folder / "spans.arrow"


def batches(path: Path) -> list[tuple[int, int]]:
    """Return (begin, end) of each record batch, in bytes."""
    found, position = [], 8
    with path.open("rb") as file:
        size = path.stat().st_size
        while (message := read_message(file, position, size)) is not None and message[0]:
            if message[0] == RECORD_BATCH:
                found.append((position, message[1]))
            position = message[1]
    return found


def overwrite(path: Path, begin: int, end: int) -> None:
    data = bytearray(path.read_bytes())
    data[begin:end] = b"\xff" * (end - begin)
    path.write_bytes(data)


def break_batch(path: Path, number: int) -> None:
    begin, end = batches(path)[number]
    overwrite(path, (begin + end) // 2, end)


def starts(trace: Any, **window: Any) -> list[int]:
    frame = trace.table("spans", **window).collect()
    return [start for (start,) in rows_of(frame, "start_ns")]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_damaged_batch_costs_only_its_rows(tmp_path: Path, number: int) -> None:
    path = table(tmp_path)
    break_batch(path, number)
    trace = rlinsight.open(tmp_path)
    lost = range(number * BATCH, (number + 1) * BATCH)
    assert starts(trace) == [n for n in range(ROWS) if n not in lost]
    (skipped,) = trace.skipped
    assert skipped.path == str(path)
    assert "1 of its 3 record batches cannot be read" in skipped.reason
    assert f"4 of 12 rows of table `spans` are left out: batch {number} (" in skipped.reason


def test_a_batch_whose_header_is_damaged_costs_only_its_rows(tmp_path: Path) -> None:
    path = table(tmp_path)
    begin, _ = batches(path)[1]
    overwrite(path, begin, begin + 64)
    assert starts(rlinsight.open(tmp_path)) == [*range(4), *range(8, 12)]


def test_a_window_leaves_out_only_what_it_needs_of_the_damage(tmp_path: Path) -> None:
    path = table(tmp_path)
    late, wide = ({"window": window} for window in ((10, 11), (2, 10)))
    trace = rlinsight.open(tmp_path)
    expected_late, expected = starts(trace, **late), starts(trace, **wide)
    break_batch(path, 1)
    trace = rlinsight.open(tmp_path)
    assert starts(trace, **late) == expected_late
    assert trace.skipped == ()  # nothing that was asked for is missing
    assert starts(trace, **wide) == [n for n in expected if n not in range(4, 8)]
    assert "batch 1 (" in trace.skipped[0].reason


def test_a_table_too_large_to_keep_is_read_around_its_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_CACHED_BYTES", 0)
    break_batch(table(tmp_path), 1)
    result = validate(rlinsight.open(tmp_path))
    # Also by a query that would not have come across the damage: a count needs no column.
    assert result.tables["spans"].rows == 8
    assert [finding.kind for finding in result.findings].count("skipped_file") == 1


def test_a_batch_that_is_not_as_long_as_the_index_says_is_left_out(tmp_path: Path) -> None:
    path = table(tmp_path)
    data = path.read_bytes()
    assert data.count(b'"rows":[4,4,4]') == 2
    path.write_bytes(data.replace(b'"rows":[4,4,4]', b'"rows":[4,5,4]'))
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == [*range(4), *range(8, 12)]
    assert "5 rows by the index, 4 by itself" in trace.skipped[0].reason


def test_many_damaged_batches_are_counted_and_the_first_named(tmp_path: Path) -> None:
    path = table(tmp_path, rows=40)
    for number in range(1, 8):
        break_batch(path, number)
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == [*range(4), *range(32, 40)]
    reason = trace.skipped[0].reason
    assert "28 of 40 rows" in reason
    assert "batch 5 (" in reason
    assert "batch 6 (" not in reason
    assert reason.endswith("and 2 more")


# ---- a torn footer ---------------------------------------------------------------------------


def test_without_its_footer_a_table_is_read_as_a_stream(tmp_path: Path) -> None:
    path = table(tmp_path)
    whole = batches(path)[-1][1]
    path.write_bytes(path.read_bytes()[: whole + 3])
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == [*range(12)]
    assert f"read from its begin up to byte {whole}, the 3 bytes" in trace.skipped[0].reason
    assert "record batches" not in trace.skipped[0].reason


def test_a_cut_table_is_read_up_to_the_cut_and_says_what_is_missing(tmp_path: Path) -> None:
    path = table(tmp_path)
    path.write_bytes(path.read_bytes()[: batches(path)[1][1] + 100])
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == [*range(8)]
    reason = trace.skipped[0].reason
    assert "its footer cannot be read" in reason
    assert "4 of 12 rows of table `spans` are left out: batch 2 (it lies behind" in reason


def test_a_cut_table_with_a_damaged_batch_is_read_around_both(tmp_path: Path) -> None:
    path = table(tmp_path, rows=16)
    break_batch(path, 1)
    path.write_bytes(path.read_bytes()[: batches(path)[2][1]])
    trace = rlinsight.open(tmp_path)
    assert starts(trace, window=(0, 100)) == [*range(4), *range(8, 12)]
    assert "8 of 16 rows" in trace.skipped[0].reason


def test_metadata_that_is_damaged_in_the_footer_is_read_at_the_head(tmp_path: Path) -> None:
    path = table(tmp_path)
    data = path.read_bytes()
    at = data.rindex(b'"bytes":')
    path.write_bytes(data[:at] + b'"bytez":' + data[at + 8 :])
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == [*range(12)]
    assert "its footer cannot be read" in trace.skipped[0].reason


@pytest.mark.parametrize("keep", [0, 5, 8, 40, 200])
def test_a_table_cut_within_its_head_is_named_and_the_others_are_used(
    tmp_path: Path, keep: int
) -> None:
    path = table(tmp_path)
    write_live(tmp_path, "markers", [{"ts_ns": 1, "kind": "pause"}])
    compact(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == []
    assert trace.markers.collect().height == 1
    assert "damaged" in trace.skipped[0].reason


def test_damaged_dictionaries_cost_every_batch(tmp_path: Path) -> None:
    # The format keeps the names of lanes and activities once, at the head.
    path = table(tmp_path)
    with path.open("rb") as file:
        schema = read_message(file, 8, path.stat().st_size)
    assert schema is not None
    overwrite(path, schema[1] + 200, batches(path)[0][0])
    trace = rlinsight.open(tmp_path)
    assert starts(trace) == []
    assert "12 of 12 rows" in trace.skipped[0].reason


# ---- what uses it ----------------------------------------------------------------------------


def test_a_damaged_table_is_never_overwritten_by_a_compaction(tmp_path: Path) -> None:
    path = table(tmp_path)
    break_batch(path, 1)
    before = path.read_bytes()
    write_live(tmp_path, "spans", [span(50, 51, lane="late")], node="n1")
    assert starts(rlinsight.open(tmp_path)) == [*range(4), *range(8, 12), 50]
    with pytest.raises(TraceError, match="cannot be read as a whole; move it away"):
        compact(tmp_path)
    assert path.read_bytes() == before


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path)
    trace = rlinsight.open(tmp_path)

    def fail(*_: Any) -> Any:
        raise ConnectionResetError("the storage went away")

    monkeypatch.setattr(type(trace.files.folder), "open_arrow", fail)
    with pytest.raises(TraceError, match="the storage went away"):
        starts(trace)
    assert trace.skipped == ()


def damaged_sample(folder: Path) -> Path:
    """Copy a sample trace and break the one batch of its markers."""
    trace = folder / "trace"
    shutil.copytree(SAMPLE, trace)
    break_batch(trace / "markers.arrow", 0)
    return trace


def test_validate_reports_it_and_analyze_uses_the_rest(tmp_path: Path) -> None:
    trace = str(damaged_sample(tmp_path))
    checked = CliRunner().invoke(app, ["validate", trace, "--json"])
    assert checked.exit_code == 1
    messages = [f["message"] for f in json.loads(checked.stdout)["findings"]]
    assert any("table `markers` are left out" in message for message in messages)
    report = CliRunner().invoke(app, ["analyze", trace, "--json"])
    assert report.exit_code == 0, report.output
    found = json.loads(report.stdout)
    assert found["throughput"]["tokens_per_s_per_device"]["value"]
    (reason,) = found["trust"]["skipped_files"].values()
    assert "table `markers` are left out" in reason


_READER = """
import sys, rlinsight
from rlinsight.errors import RlinsightError
from rlinsight.trace.validate import validate
for folder in sys.argv[1:]:
    try:
        validate(rlinsight.open(folder))
    except RlinsightError as error:
        print(error)
"""


def test_whatever_is_damaged_nothing_crashes(tmp_path: Path) -> None:
    """In a process of its own, since what Arrow follows out of bounds ends the process."""
    whole = table(tmp_path / "whole", rows=64).read_bytes()
    rng = random.Random(7)
    folders = []
    for number in range(150):
        data = bytearray(whole)
        if number % 5 == 0:
            data = data[: rng.randrange(len(data))]
        else:
            at = rng.randrange(len(data))
            size = rng.choice([1, 1, 8, 300])
            data[at : at + size] = rng.randbytes(len(data[at : at + size]))
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "spans.arrow").write_bytes(data)
        folders.append(str(folder))
    done = subprocess.run(
        [sys.executable, "-c", _READER, *folders], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_part_of_the_limits_is_documented() -> None:
    text = (Path(__file__).parent.parent / "docs" / "trace.md").read_text()
    for words in ("damaged batch", "torn footer", "dictionaries"):
        assert words in text
