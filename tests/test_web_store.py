"""Traces below a folder: found, addressed, shared, read anew, and let go."""

from __future__ import annotations

import os
import threading

import pytest
from timelines import Timeline

import rlinsight
from rlinsight.trace.manifest import Manifest
from rlinsight.webapp import store as store_module
from rlinsight.webapp.folder import find_traces, run_id, stamp_of
from rlinsight.webapp.state import state_of
from rlinsight.webapp.store import Store, UnknownRunError


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def trace(path, steps=1):
    t = Timeline(path)
    for step in range(steps):
        t.step(step, step, step + 1)
    t.open()
    return path


def test_traces_are_found_at_any_depth_and_not_inside_each_other(tmp_path):
    for name in ("a", "b/c", "b/d/e"):
        trace(tmp_path / name)
    trace(tmp_path / "a/inner")
    (tmp_path / "no-trace/files").mkdir(parents=True)
    assert [found.name for found in find_traces(tmp_path)] == ["a", "b/c", "b/d/e"]


def test_a_folder_that_is_a_trace_is_served_under_its_own_name(tmp_path):
    trace(tmp_path / "run")
    assert list(Store(tmp_path / "run").found()) == ["run"]


def test_ids_are_readable_safe_and_never_the_same(tmp_path):
    assert run_id("run-1_a.b") == "run-1_a.b"
    ids = [run_id(name) for name in ("a/b", "a-b", "a b", "<b>", "ä", "\u202e", "x" * 300)]
    assert len(set(ids)) == len(ids)
    assert all(set(one) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.") for one in ids)
    assert max(map(len, ids)) < 100


@pytest.mark.parametrize(
    "wanted",
    ["..", "../secret", "/etc", "a/../../secret", "%2e%2e", "\0", "", "secret", "x" * 10_000],
)
def test_nothing_outside_the_folder_has_an_id(tmp_path, wanted):
    trace(tmp_path / "secret")
    trace(tmp_path / "served/a")
    with pytest.raises(UnknownRunError):
        Store(tmp_path / "served").run(wanted)


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path):
    trace(tmp_path / "secret")
    trace(tmp_path / "served/a")
    (tmp_path / "served/out").symlink_to(tmp_path / "secret")
    (tmp_path / "served/up").symlink_to(tmp_path)
    (tmp_path / "served/alias").symlink_to(tmp_path / "served/a")
    (tmp_path / "served/dangling").symlink_to(tmp_path / "nothing")
    assert list(Store(tmp_path / "served").found()) == ["a", "alias"]


def test_a_folder_whose_name_is_no_text_is_listed_with_its_bytes_escaped(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xffrun"
    os.makedirs(folder + b"/live")
    (found,) = find_traces(tmp_path)
    assert found.name == "\\xffrun"
    assert os.fsencode(found.path) == folder
    assert found.id.isascii()


def test_a_run_is_opened_once_for_everybody(tmp_path):
    trace(tmp_path / "a")
    store = Store(tmp_path)
    found = []
    threads = [threading.Thread(target=lambda: found.append(store.run("a"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(run) for run in found}) == 1
    assert len({id(run.report) for run in found}) == 1


def test_a_trace_that_changed_is_read_anew_and_not_too_often(tmp_path):
    clock = Clock()
    path = trace(tmp_path / "a", steps=1)
    store = Store(tmp_path, clock=clock)
    first = store.run("a")
    with rlinsight.TraceWriter(path) as writer:
        writer.span("step", lane="trainer", start_ns=5, end_ns=6)
    assert store.run("a") is first
    clock.now += store_module.REREAD_S + store_module.REREAD_TIMES * first.took_s + 1
    second = store.run("a")
    assert second.stamp != first.stamp
    assert second.trace.spans.collect().height == first.trace.spans.collect().height + 1
    clock.now += 60
    assert store.run("a") is second


def test_few_runs_are_kept_open_and_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "MAX_OPEN", 2)
    for i in range(5):
        trace(tmp_path / f"r{i}")
    store = Store(tmp_path)
    first = store.run("r0")
    assert len([row for row in store.summaries() if row]) == 5
    assert store.run("r0") is not first
    assert store.run("r0") is store.run("r0")


def test_memory_is_bounded_by_size_too(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "MAX_OPEN_BYTES", 1)
    for name in "ab":
        trace(tmp_path / name)
    store = Store(tmp_path)
    first = store.run("a")
    store.run("b")
    assert store.run("a") is not first


def test_rows_come_within_the_time_given(tmp_path):
    for name in "abc":
        trace(tmp_path / name)

    class Ticking(Clock):
        def __call__(self):
            self.now += 1.0
            return self.now

    store = Store(tmp_path, clock=Ticking())
    assert store.summaries(budget_s=4).count(None) > 0
    for _ in range(5):
        rows = store.summaries(budget_s=4)
    assert None not in rows


def test_a_run_that_has_just_begun_is_live_and_not_broken(tmp_path):
    with rlinsight.TraceWriter(tmp_path / "a") as writer:
        writer.flush()
        (row,) = Store(tmp_path).summaries()
        assert (row.state, row.problem) == ("Live", "nothing has been recorded of this run yet")


def test_a_run_that_vanishes_is_no_longer_listed(tmp_path):
    clock = Clock()
    path = trace(tmp_path / "a")
    store = Store(tmp_path, clock=clock)
    assert list(store.runs())
    for file in sorted(path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    path.rmdir()
    clock.now += 10
    assert list(store.runs()) == []


def test_the_state_of_a_run(tmp_path):
    stamp = stamp_of(trace(tmp_path / "a"))
    soon, later = stamp.modified_ns + 1_000_000_000, stamp.modified_ns + 600_000_000_000
    assert state_of(Manifest(ended_ns=1, exit_code=0), stamp, later) == "finished"
    assert state_of(Manifest(ended_ns=1, exit_code=3), stamp, soon) == "failed"
    assert state_of(Manifest(), stamp, soon) == "live"
    assert state_of(Manifest(), stamp, later) == "silent"


def test_a_stamp_changes_with_every_write(tmp_path):
    path = trace(tmp_path / "a")
    before = stamp_of(path)
    file = next(path.glob("live/spans-*"))
    with file.open("ab") as stream:
        stream.write(b"x")
    grown = stamp_of(path)
    os.utime(file, ns=(0, grown.modified_ns + 1))
    assert len({before, grown, stamp_of(path)}) == 3
    assert stamp_of(tmp_path / "nothing").files == 0
