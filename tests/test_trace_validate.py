"""`rlinsight validate`: what it counts, and what it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from live_streams import counter, request, span, write_live, write_process
from typer.testing import CliRunner

import rlinsight
from rlinsight import Lane, TraceWriter
from rlinsight.cli.validate import validate as validate_command
from rlinsight.trace.findings import FINDING_KINDS
from rlinsight.trace.validate import validate
from rlinsight.trace.validation import Validation

S = 1_000_000_000
_LANES = [
    {"id": "trainer", "role": "trainer"},
    {"id": "replica0", "role": "replica"},
    {"id": "queue", "role": "queue"},
]


def check(folder: Path) -> Validation:
    return validate(rlinsight.open(folder))


def kinds(result: Validation) -> list[str]:
    return [finding.kind for finding in result.findings]


def healthy(folder: Path, **process: Any) -> None:
    """Ten seconds in which nothing is wrong."""
    write_live(
        folder,
        "spans",
        [span(0, 10 * S, "step"), span(0, 4 * S, "wait_samples"), span(4 * S, 9 * S)],
    )
    write_live(
        folder,
        "requests",
        [request("a", 0, 2 * S, finish="stop"), request("b", 0, 3 * S, finish="abort")],
        [request("c", 9 * S, None)],
    )
    write_live(
        folder,
        "samples",
        [
            {"sample_uid": "s", "produced_ns": 2 * S, "consumed_ns": 4 * S, "fate": "trained"},
            {"sample_uid": "t", "produced_ns": 3 * S, "fate": "dropped_stale"},
            {"sample_uid": "u", "produced_ns": 9 * S},
        ],
    )
    write_live(folder, "counters", [counter(S, 1.0)])
    content = {"topology": {"lanes": _LANES}, "ended_ns": 10 * S, "flushed_ns": 10 * S}
    write_process(folder, **{**content, **process})


def test_a_healthy_trace_is_valid_and_counted(tmp_path: Path) -> None:
    healthy(tmp_path, hook_ns=10_000_000)
    result = check(tmp_path)
    assert kinds(result) == []
    assert result.ok
    assert {name: table.rows for name, table in result.tables.items()} == {
        "spans": 3, "requests": 3, "samples": 3, "counters": 1, "metrics": 0, "markers": 0,
    }  # fmt: skip
    assert (result.time_range, result.duration_s) == ((0, 10 * S), 10.0)
    assert (result.hook_share, result.hook_share_largest) == (0.001, 0.001)
    requests, samples = result.requests, result.samples
    assert (requests.submitted, requests.finished, requests.aborted, requests.in_flight) == (
        3, 1, 1, 1,
    )  # fmt: skip
    assert (samples.trained, samples.dropped_stale, samples.unconsumed) == (1, 1, 1)
    assert [(lane.id, lane.role, lane.rows) for lane in result.lanes] == [
        ("trainer", "trainer", 3),
        ("replica0", "replica", 3),
        ("queue", "queue", 1),
    ]


def test_compaction_changes_no_verdict(tmp_path: Path) -> None:
    healthy(tmp_path)
    before = check(tmp_path)
    rlinsight.compact(tmp_path)
    after = check(tmp_path)
    assert after.ok
    assert (after.requests, after.samples) == (before.requests, before.samples)
    assert after.lanes == before.lanes


def test_conservation_adds_up(tmp_path: Path) -> None:
    healthy(tmp_path)
    requests, samples = check(tmp_path).requests, check(tmp_path).samples
    parts = (requests.finished, requests.aborted, requests.in_flight, requests.unknown)
    assert sum(parts) == requests.submitted
    fates = (
        samples.trained, samples.dropped_stale, samples.filtered, samples.aborted,
        samples.unconsumed, samples.unknown,
    )  # fmt: skip
    assert sum(fates) == samples.samples


def wrong(folder: Path, name: str) -> None:
    """Add one defect to a healthy trace."""
    if name == "overlap":
        write_live(folder, "spans", [span(8 * S, 10 * S, "reward")], pid=2)
    elif name == "backward_times":
        write_live(folder, "spans", [span(9 * S, 8 * S)], pid=2)
    elif name == "undeclared_lane":
        write_live(folder, "spans", [span(9 * S, 10 * S, lane="ghost")], pid=2)
    elif name == "unknown_name":
        write_live(
            folder, "requests", [request("z", 0, S, finish="stop", engine_kind="odd")], pid=2
        )
    elif name == "requests_not_conserved":
        write_live(folder, "requests", [request("z", 0, S)], pid=2)
    elif name == "samples_not_conserved":
        write_live(folder, "samples", [{"sample_uid": "z", "fate": "trained"}], pid=2)
    elif name == "skipped_file":
        (folder / "live" / "spans-n0-7.arrows").write_bytes(b"what is this?")
    elif name == "dropped_rows":
        write_process(folder, pid=2, ended_ns=1, flushed_ns=10 * S, dropped={"spans": 3})
    elif name == "hook_failure":
        hook = {"status": "installed", "errors": 2, "reason": "KeyError: 'step'"}
        write_process(folder, pid=2, ended_ns=1, flushed_ns=10 * S, hooks={"actor": hook})
    elif name == "hook_overhead":
        write_process(folder, pid=2, ended_ns=1, flushed_ns=10 * S, hook_ns=110_000_000)
    elif name == "uncalibrated_clock":
        write_process(folder, node="n1", pid=2, ended_ns=1, flushed_ns=10 * S)
        (folder / "manifest.json").write_text(json.dumps({"clock": {"reference": "n0"}}))
    elif name == "dead_lane":
        lane = {"lanes": [{"id": "replica1", "role": "replica", "pid": 2}]}
        write_process(folder, pid=2, flushed_ns=3 * S, topology=lane)


def test_many_processes_that_each_record_cheaply_slow_nothing(tmp_path: Path) -> None:
    """40 processes with 20 ms in hooks each, of 10 s: 8 % in all, 0.2 % in any of them."""
    healthy(tmp_path)
    for pid in range(2, 42):
        write_process(tmp_path, pid=pid, ended_ns=1, flushed_ns=10 * S, hook_ns=20_000_000)
    result = check(tmp_path)
    assert kinds(result) == []
    assert (result.hook_share, result.hook_share_largest) == (0.08, 0.002)
    trust = rlinsight.open(tmp_path).analyze().trust
    assert (trust.hook_share, trust.hook_share_largest) == (0.08, 0.002)


@pytest.mark.parametrize("name", FINDING_KINDS)
def test_each_defect_is_found_and_nothing_else(tmp_path: Path, name: str) -> None:
    healthy(tmp_path)
    assert check(tmp_path).ok
    wrong(tmp_path, name)
    assert kinds(check(tmp_path)) == [name]


def test_messages_name_who_and_how_much(tmp_path: Path) -> None:
    healthy(tmp_path)
    wrong(tmp_path, "overlap")
    wrong(tmp_path, "uncalibrated_clock")
    overlap, clock = (finding.message for finding in check(tmp_path).findings)
    assert overlap.startswith("lane `trainer`: 1 spans overlap an earlier one by 1.000 s")
    assert "the clock of node `n1` was never compared" in clock


def test_the_lane_that_died_is_named(tmp_path: Path) -> None:
    healthy(tmp_path)
    wrong(tmp_path, "dead_lane")
    (finding,) = check(tmp_path).findings
    assert finding.message.startswith("`replica1` (n0, pid 2) died")
    assert "7.0 s before" in finding.message


def test_workers_that_are_killed_at_the_end_of_a_good_run_are_not_dead(tmp_path: Path) -> None:
    healthy(tmp_path)
    write_process(tmp_path, pid=2, flushed_ns=6 * S)
    assert kinds(check(tmp_path)) == ["dead_lane"]
    (tmp_path / "manifest.json").write_text(json.dumps({"exit_code": 0}))
    assert kinds(check(tmp_path)) == []


def test_who_begins_after_the_others_have_ended_makes_none_of_them_dead(tmp_path: Path) -> None:
    """The launcher imports kernel profiles for ten seconds after Ray has killed the workers."""
    healthy(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"exit_code": 0}))
    write_process(tmp_path, pid=2, flushed_ns=9 * S)
    write_process(tmp_path, pid=3, started_ns=11 * S, flushed_ns=21 * S, ended_ns=21 * S)
    assert kinds(check(tmp_path)) == []
    write_process(tmp_path, pid=3, started_ns=8 * S, flushed_ns=21 * S, ended_ns=21 * S)
    assert kinds(check(tmp_path)) == ["dead_lane"]


def test_containers_replicas_and_foreign_activities_may_overlap(tmp_path: Path) -> None:
    healthy(tmp_path)
    rows = [span(0, 5 * S, "other:mine"), span(S, 2 * S, "paused", "replica0")]
    rows.append(span(5 * S, 6 * S, "paused"))
    write_live(tmp_path, "spans", rows, [span(S, 3 * S, "sleep", "replica0")], pid=2)
    result = check(tmp_path)
    assert result.ok
    assert any("`other:mine`" in note for note in result.notes)


def test_an_open_interval_and_a_foreign_file_are_notes(tmp_path: Path) -> None:
    healthy(tmp_path)
    write_live(tmp_path, "spans", [span(9 * S, None, "validate")], pid=2)
    (tmp_path / "live" / "core.77").touch()
    result = check(tmp_path)
    assert result.ok
    assert result.open_spans == 1
    assert any("never ended" in note for note in result.notes)
    assert any("core.77" in note for note in result.notes)


def test_the_launchers_files_are_no_foreign_ones(tmp_path: Path) -> None:
    healthy(tmp_path)
    for name in ("console.log", "verl-metrics.jsonl", "report.html", "hydra/.hydra/config.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("kept beside the trace")
    result = check(tmp_path)
    assert result.ok
    assert result.skipped == {}
    assert not [note for note in result.notes if "not files of a trace" in note]


def test_an_empty_trace_is_valid(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    result = check(tmp_path)
    assert result.ok
    assert result.duration_s is None


def test_what_the_writer_wrote_is_valid(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, lane="trainer", mode="sync") as writer:
        writer.declare_lane(Lane("trainer", role="trainer"))
        with writer.begin("update_actor", step=1):
            pass
    result = check(tmp_path)
    assert kinds(result) == []
    assert result.mode == "sync"


# -- the command ----------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    import typer

    app = typer.Typer()
    app.command()(validate_command)
    return CliRunner().invoke(app, arguments)


def test_a_clean_trace_exits_0_with_the_next_command(tmp_path: Path) -> None:
    healthy(tmp_path)
    result = command(str(tmp_path))
    assert result.exit_code == 0
    *_, verdict, following = result.output.strip().splitlines()
    assert verdict == f"{tmp_path}: valid; 10 rows on 3 lanes over 10.0 s"
    assert following == f"next: rlinsight analyze {tmp_path}"


def test_findings_exit_1(tmp_path: Path) -> None:
    healthy(tmp_path)
    wrong(tmp_path, "undeclared_lane")
    result = command(str(tmp_path))
    assert result.exit_code == 1
    assert "finding  undeclared_lane: lanes never declared, so that" in result.output
    assert f"{tmp_path}: 1 finding;" in result.output


def test_json_is_the_whole_result(tmp_path: Path) -> None:
    healthy(tmp_path)
    result = command(str(tmp_path), "--json")
    assert json.loads(result.output) == json.loads(json.dumps(check(tmp_path).to_dict()))


def test_a_hostile_lane_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    healthy(tmp_path)
    write_live(tmp_path, "spans", [span(9 * S, 10 * S, lane="\x1b[2Jgone\n[bold]")], pid=2)
    output = command(str(tmp_path)).output
    assert "\x1b" not in output
    assert r"\x1b[2Jgone\n[bold]" in output
