"""A trace that is compacted while somebody reads it is read once, and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_streams import frames, two_processes

import rlinsight
from rlinsight.trace.compact import compact
from rlinsight.trace.files import find_files
from rlinsight.trace.folder import Entry, LocalFolder
from rlinsight.trace.reader import Trace


class Meanwhile(LocalFolder):
    """A folder in which something happens just before its listing number `when`."""

    def __init__(self, path: Path, when: int, what: Callable[[], object]) -> None:
        super().__init__(path)
        self._when, self._what = when, what
        self.listings = 0

    def entries(self, sub: str = "") -> list[Entry]:
        self.listings += 1
        if self.listings == self._when:
            self._what()
        return super().entries(sub)


def _rows(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    return {name: frame.rows() for name, frame in frames(trace).items()}


def test_what_was_opened_live_and_then_compacted_is_read_from_its_tables(tmp_path: Path) -> None:
    two_processes(tmp_path)
    expected = _rows(rlinsight.open(tmp_path))
    opened = rlinsight.open(tmp_path)
    compact(tmp_path)
    assert _rows(opened) == expected
    assert opened.skipped == ()
    assert not opened.is_live


def test_what_of_it_is_skipped_is_asked_of_the_tables_too(tmp_path: Path) -> None:
    two_processes(tmp_path)
    opened = rlinsight.open(tmp_path)
    compact(tmp_path)
    assert opened.skipped == ()


@pytest.mark.parametrize("when", [1, 2, 3])
def test_a_compaction_during_the_look_is_neither_missed_nor_counted_twice(
    tmp_path: Path, when: int
) -> None:
    two_processes(tmp_path)
    expected = _rows(rlinsight.open(tmp_path))
    folder = Meanwhile(tmp_path, when, lambda: compact(tmp_path))
    found = Trace(find_files(folder))
    assert _rows(found) == expected
    assert found.skipped == ()


def test_a_live_file_that_was_deleted_is_still_missed(tmp_path: Path) -> None:
    two_processes(tmp_path)
    opened = rlinsight.open(tmp_path)
    gone = min((tmp_path / "live").glob("spans-*.arrows"))
    gone.unlink()
    opened.spans.collect()
    assert [(Path(s.path).name, s.reason) for s in opened.skipped] == [
        (gone.name, "cannot be read: No such file or directory")
    ]
