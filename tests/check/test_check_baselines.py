"""`rlinsight baseline`: runs are accepted, listed, trusted and dropped."""

from __future__ import annotations

import fsspec
import pytest
from gating import cli, gate_runs

from rlinsight.trace.manifest import update_manifest


def test_list_shows_the_latest_first(runs, baseline):
    cli("baseline", "add", runs["equal"], "--to", baseline, "--untrusted", "--note", "odd")
    done = cli("baseline", "list", baseline)
    lines = [line.split() for line in done.out.splitlines() if line.startswith("run")]
    assert [line[:2] for line in lines[1:]] == [["run2", "no"], ["run1", "yes"]]
    assert lines[1][-1] == "odd"
    assert "2 runs, 1 trusted" in done.out
    rows = cli("baseline", "list", baseline, "--json").json["runs"]
    assert [row["name"] for row in rows] == ["run2", "run1"]
    assert rows[0]["step_time_s"] > 1


def test_a_name_that_is_taken_is_not_overwritten(runs, baseline):
    done = cli("baseline", "add", runs["first"], "--to", baseline)
    assert (done.code, "`run1` is in" in done.err) == (2, True)
    assert cli("baseline", "add", runs["first"], "--to", baseline, "--replace").code == 0
    assert cli("baseline", "add", runs["first"], "--to", baseline, "--name", "again").code == 0


def test_accepting_says_what_a_run_lacks(tmp_path):
    trace = gate_runs.write(tmp_path / "t", gate_runs.Kind(steps=3), 1)
    done = cli("baseline", "add", trace, "--to", tmp_path / "b")
    assert "it lacks steady windows: 3, and a check needs 4 by default" in done.out


def test_trust_and_drop(runs, baseline):
    cli("baseline", "trust", "run1", baseline, "--off")
    assert cli("baseline", "list", baseline, "--json").json["runs"][0]["trusted"] is False
    cli("baseline", "trust", "run1", baseline)
    assert cli("baseline", "list", baseline, "--json").json["runs"][0]["trusted"] is True
    assert cli("baseline", "drop", "run1", baseline).code == 0
    assert cli("baseline", "list", baseline, "--json").json["runs"] == []


@pytest.mark.parametrize("action", ["trust", "drop"])
def test_a_name_that_is_not_there_is_answered_with_those_that_are(baseline, action):
    done = cli("baseline", action, "run7", baseline)
    assert (done.code, "(run1), found `run7`" in done.err) == (2, True)


def test_trusting_changes_one_line_of_the_file(runs, baseline):
    before = (baseline / "run1.json").read_text().splitlines()
    cli("baseline", "trust", "run1", baseline, "--off")
    after = (baseline / "run1.json").read_text().splitlines()
    assert len(before) == len(after) > 20
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_a_run_that_failed_is_not_accepted(tmp_path):
    trace = gate_runs.write(tmp_path / "t", gate_runs.Kind(steps=6), 1)
    update_manifest(trace, exit_code=1)
    done = cli("baseline", "add", trace, "--to", tmp_path / "b")
    assert (done.code, "found exit code 1" in done.err) == (2, True)
    assert not (tmp_path / "b").exists()


def test_an_fsspec_url_serves_as_well(runs):
    fsspec.filesystem("memory").store.clear()
    url = "memory://team/baselines"
    assert cli("baseline", "add", runs["first"], "--to", url).code == 0
    assert cli("check", runs["equal"], "--baseline", url).code == 0
    assert cli("check", runs["slow"], "--baseline", url).code == 1
    assert cli("baseline", "drop", "run1", url).code == 0
    assert cli("baseline", "list", url, "--json").json["runs"] == []
