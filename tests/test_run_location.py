"""Where traces go, and how they get there."""

from __future__ import annotations

import fsspec
import pytest

from rlinsight.errors import TraceError
from rlinsight.runs.config import RecordingConfig
from rlinsight.runs.location import Location, locate, reachable, upload


def test_a_template_is_filled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = RecordingConfig(name="mine", mode="sync", trace="runs/{mode}/{name}-{time}")
    location = locate(config, "run-1", now=0)
    assert location.url is None
    assert location.folder.parent == tmp_path / "runs" / "sync"
    assert location.folder.name.startswith("mine-19")
    assert location.final == str(location.folder.relative_to(tmp_path))


def test_a_url_gets_a_spool_folder_of_its_own(tmp_path):
    config = RecordingConfig(trace="memory://bucket/{name}/")
    first, second = locate(config, "run-1"), locate(config, "run-2")
    assert first.url == first.final == "memory://bucket/run"
    assert first.folder != second.folder


def test_a_spool_folder_is_moved_to_the_url_with_its_subfolders(tmp_path):
    spool = tmp_path / "spool"
    (spool / "hydra" / ".hydra").mkdir(parents=True)
    (spool / "spans.arrow").write_bytes(b"rows")
    (spool / "hydra" / ".hydra" / "config.yaml").write_text("a: 1")
    assert upload(Location(spool, "memory://moved/run")) == "memory://moved/run"
    there = fsspec.filesystem("memory")
    assert there.cat("/moved/run/spans.arrow") == b"rows"
    assert there.cat("/moved/run/hydra/.hydra/config.yaml") == b"a: 1"
    assert not spool.exists()


def test_a_spool_folder_that_cannot_be_moved_is_kept_and_named(tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "spans.arrow").write_bytes(b"rows")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TraceError, match=f"it is kept in `{spool}`"):
        upload(Location(spool, f"file://{tmp_path}/file/run"))
    assert (spool / "spans.arrow").read_bytes() == b"rows"


def test_a_place_nobody_can_write_is_told_before_the_run(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert reachable(f"file://{tmp_path}/new") is None
    assert "cannot write to" in reachable(f"file://{tmp_path}/file/run")
