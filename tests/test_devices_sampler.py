"""The sampler process: how it ends, what a gap is, and that its names are documented."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from device_stubs import Recording, counters, markers, sampler, wait_for

import rlinsight
from rlinsight.collectors import devices
from rlinsight.collectors.devices.board import Rate, Unsupported
from rlinsight.collectors.devices.catalogue import COUNTERS, MARKERS
from rlinsight.collectors.devices.claims import claimed_devices
from rlinsight.collectors.devices.sampler import Sampler, Watch

DOCS = Path(__file__).parent.parent / "docs" / "hardware.md"
S = 1_000_000_000


def has_rows(path):
    return lambda: list((path / "live").glob("counters-*.arrows"))


def test_the_launcher_starts_and_stops_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RLINSIGHT_NODE", "n0")
    process = devices.start(tmp_path / "trace", run_id="r1")
    wait_for(has_rows(tmp_path / "trace"))
    assert devices.stop(process) == 0
    trace = rlinsight.open(tmp_path / "trace")
    (writer,) = trace.manifest.processes
    assert (writer.run_id, writer.ended_ns is not None) == ("r1", True)
    assert counters(trace, "n0")["host_memory_total_bytes"][0] > 0


def test_it_ends_when_its_launcher_is_killed(tmp_path):
    program = (
        "import sys, time\nfrom rlinsight.collectors import devices\n"
        f"print(devices.start({str(tmp_path / 'trace')!r}).pid, flush=True)\ntime.sleep(60)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(launcher.stdout.readline())
    wait_for(has_rows(tmp_path / "trace"))
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    wait_for(lambda: is_over(pid))
    (writer,) = rlinsight.open(tmp_path / "trace").manifest.processes
    assert writer.ended_ns is not None


def is_over(pid):
    """Ended; an orphan may stay as a zombie where no init collects it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_it_ends_with_the_trace_folder_and_does_not_bring_it_back(tmp_path):
    process = sampler(tmp_path / "trace")
    wait_for(lambda: list((tmp_path / "trace" / "live").glob("process-*.json")))
    shutil.rmtree(tmp_path / "trace")
    assert process.wait(20) == 0
    assert not (tmp_path / "trace").exists()


def test_a_new_folder_of_the_same_name_is_not_the_trace(tmp_path):
    trace = tmp_path / "trace"
    trace.mkdir()
    watch = Watch(trace, None)
    assert not watch.over()
    trace.rmdir()
    trace.mkdir()
    assert watch.over()


@pytest.mark.parametrize("interval", ["0.01", "100", "fast"])
def test_an_interval_out_of_range_is_refused(tmp_path, interval):
    command = [sys.executable, "-m", "rlinsight.collectors.devices", str(tmp_path)]
    refused = subprocess.run([*command, f"--interval={interval}"], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "--interval" in refused.stderr


def test_the_watch_knows_a_parent_that_is_not_its_own(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watch = Watch(tmp_path, other.pid)
    assert not watch.over()
    other.communicate()
    assert watch.over()


def test_a_failure_is_one_gap_until_it_answers_again(tmp_path):
    answers = iter([7.0, OSError("bus error\nmore"), OSError("bus error"), 8.0])

    def query():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    recording = Recording(tmp_path)
    board = recording.board()
    for _ in range(4):
        board.put("device_power_w", board.ask("n0/0", "power", query), "n0/0")
    assert recording.counters("n0/0") == {"device_power_w": [7.0, 8.0]}
    assert recording.markers() == [("gap", "n0/0", "bus error"), ("gap_end", "n0/0", None)]


def test_what_is_unsupported_is_asked_once_per_device(tmp_path):
    asked = []

    def query():
        asked.append(1)
        raise Unsupported("Not Supported")

    recording = Recording(tmp_path)
    board = recording.board("nvml")
    for lane in ("n0/0", "n0/0", "n0/1"):
        assert board.ask(lane, "fan", query) is None
    assert len(asked) == 2
    assert recording.markers() == []
    assert recording.notes["unsupported_queries.nvml.n0"]["n0/1"] == {"fan": "Not Supported"}


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf")])
def test_no_number_no_row(tmp_path, missing):
    recording = Recording(tmp_path)
    recording.board().put("device_power_w", missing, "n0/0")
    assert recording.counters("n0/0") == {}


def test_a_rate_needs_two_totals_and_no_step_back():
    rate = Rate()
    totals = [(0, 100), (2, 300), (3, 50), (4, 80), (5, None), (6, 90), (7, 95)]
    rates = [rate.of(total, at * S) for at, total in totals]
    assert rates == [None, 100.0, None, 30.0, None, None, 5.0]


class Scripted:
    """A source that lasts as long as it is told to."""

    name = "scripted"
    shortest_s = 0.01

    def __init__(self, *steps) -> None:
        self.device_uuids: dict[str, str] = {}
        self._steps = iter(steps)
        self.closed = False

    def sample(self, board) -> None:
        step = next(self._steps, None)
        if isinstance(step, Exception):
            raise step
        if step is not None:
            step()
        board.put("device_power_w", 1.0, "n0/0")

    def close(self) -> None:
        self.closed = True


def run(recording, *sources, until):
    """Run the loop until the trace satisfies `until`."""
    stop = threading.Event()
    with Sampler(recording.writer, sources, 0.01) as loop:
        watching = threading.Thread(
            target=loop.run, args=(stop, Watch(recording.writer.path, None))
        )
        watching.start()
        wait_for(until)
        stop.set()
        watching.join()


def test_a_source_that_fails_outside_of_its_queries_goes_on(tmp_path):
    recording = Recording(tmp_path)
    source = Scripted(ZeroDivisionError("oops"))
    source.shortest_s = 0.5  # so that a busy machine is not late as well
    run(recording, source, until=lambda: recording.counters("n0/0"))
    assert recording.markers() == [("gap", "n0", "oops"), ("gap_end", "n0", None)]
    assert source.closed


def test_a_sample_that_takes_many_intervals_is_one_gap(tmp_path):
    recording = Recording(tmp_path)
    slow = threading.Event()
    source = Scripted(lambda: slow.wait(2), lambda: slow.wait(2), None, None)
    source.shortest_s = 0.5
    kinds = lambda: [(kind, lane) for kind, lane, _ in recording.markers()]  # noqa: E731
    run(recording, source, until=lambda: ("gap_end", "n0") in kinds())
    assert kinds()[:2] == [("gap", "n0"), ("gap_end", "n0")]
    assert len(recording.counters("n0/0")["device_power_w"]) >= 3


def test_a_source_that_hangs_is_reported_and_stops_nobody_else(tmp_path, monkeypatch):
    monkeypatch.setattr("rlinsight.collectors.devices.sampler._HANGS_S", 0.2)
    recording = Recording(tmp_path)
    forever = threading.Event()
    run(
        recording,
        Scripted(forever.wait),
        Scripted(),
        until=lambda: (
            ("gap", "n0", "no answer for 0 s") in recording.markers() and recording.counters("n0/0")
        ),
    )
    forever.set()


def test_only_what_a_worker_of_this_node_declared_is_claimed(tmp_path):
    here = rlinsight.Device("n0/0", "n0", 0, "npu", "trainer")
    for node in ("n0", "n1"):
        with rlinsight.TraceWriter(tmp_path, node=node) as worker:
            worker.declare_device(
                here if node == "n0" else rlinsight.Device("n1/0", "n1", 0, "npu", "rollout")
            )
    (tmp_path / "live" / "process-n0-1.json").write_text("{ torn")
    assert claimed_devices(tmp_path / "live", "n0") == [here]


def documented():
    """First cells of the tables under Counters and Markers."""
    text = DOCS.read_text()
    tables = text[text.index("\n## Counters") : text.index("\n## Sources")]
    return set(re.findall(r"^\| `([a-z_0-9]+)`", tables, re.MULTILINE))


def test_every_counter_and_marker_is_documented_and_nothing_else():
    assert documented() == {*COUNTERS, *MARKERS}


def test_the_process_costs_no_heavy_import(tmp_path):
    program = (
        "import sys\nfrom rlinsight.collectors.devices.__main__ import main\nprint(*sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"polars", "torch", "ray", "pydantic"} & {
        name.split(".")[0] for name in out.stdout.split()
    }


def test_markers_of_a_whole_run_without_trouble(tmp_path):
    process = sampler(tmp_path / "trace", "--interval=1")
    wait_for(has_rows(tmp_path / "trace"))
    process.terminate()
    assert process.wait(20) == 0
    assert markers(rlinsight.open(tmp_path / "trace")) == []
