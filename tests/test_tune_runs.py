"""What a run showed the tuning, and the process that a run is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from gating import gate_runs
from simulated import job

import rlinsight
from rlinsight.analyzers.gate.result import MetricVerdict
from rlinsight.analyzers.simulate import predict_change
from rlinsight.runs.tune import child
from rlinsight.runs.tune.child import Ended
from rlinsight.runs.tune.judge import LEAST, fresher, judged
from rlinsight.runs.tune.log import Judged
from rlinsight.runs.tune.measure import measured, predicted
from rlinsight.trace.manifest import update_manifest

#: How `rlinsight run` ended; `ended_ns` may be of another clock.
ENDED_AT_9 = {"ended": {"exit_code": 0, "at_s": 9.0}}

# -- what a run showed ---------------------------------------------------------------------


def recorded(path: Path, seed: int, wait: float = 1.0, steps: int = 24, noise: float = 0.01) -> str:
    kind = gate_runs.Kind(noise=noise, length_spread=0.05, steps=steps, slow={"wait_samples": wait})
    gate_runs.write(path, kind, seed=seed)
    update_manifest(path, exit_code=0, ended_ns=7_000_000_000, notes=ENDED_AT_9)
    return str(path)


def test_runs_are_judged_by_their_traces(tmp_path):
    kept, faster = recorded(tmp_path / "a", 1), recorded(tmp_path / "b", 2, wait=0.3)
    same = recorded(tmp_path / "c", 3)
    found = judged(kept, faster, "per-device")
    assert (found.real, found.losses) == ("better", ())
    assert found.low < found.change < found.high
    assert judged(kept, same, "wall-clock").real == "no"
    assert judged(faster, kept, "per-device").real == "worse"


def test_what_cannot_be_used_says_why(tmp_path):
    good = recorded(tmp_path / "a", 1)
    assert measured(good, 0, "per-device").problem is None
    assert "exit code 3" in measured(good, 3, "per-device").problem
    assert "cannot be read" in measured(str(tmp_path / "none"), 0, "per-device").problem
    short = recorded(tmp_path / "b", 1, steps=3)
    assert "raise `steps`" in measured(short, 0, "per-device").problem


def test_a_run_that_recorded_nothing_is_a_problem_and_no_end_of_the_tuning(tmp_path):
    good, empty = recorded(tmp_path / "a", 1), tmp_path / "b"
    with rlinsight.TraceWriter(empty, mode="fully_async", topology=gate_runs.TOPOLOGY):
        pass
    update_manifest(empty, exit_code=0, ended_ns=7_000_000_000)
    assert "cannot be analyzed" in measured(str(empty), 0, "per-device").problem
    found = judged(good, str(empty), "per-device")
    assert found.real is None
    assert "cannot be compared" in found.reason


def test_what_would_have_been_caught_is_said_at_the_level_of_the_decision(tmp_path):
    """5 %, as p < 0.05 decides: a corrected level would ask for about half as much again."""
    kept, same = recorded(tmp_path / "a", 1, noise=0.1), recorded(tmp_path / "b", 2, noise=0.1)
    found = judged(kept, same, "per-device")
    half = (found.high - found.low) / 2
    assert half > LEAST
    # 80 % of cases are 0.84 to 0.88 standard errors more, the interval's half-width is 2 to 2.2.
    assert 1.35 * half < found.detectable < 1.45 * half


def test_what_is_predicted_by_the_wall_clock_is_samples_as_is_measured():
    """Responses of 4 and 8 tokens are cut at 6: a sample has 5 tokens instead of 6."""
    effect = predict_change(job(lengths=(4, 8), train_s=0.1), {"max_response_length": 6})
    before, after = effect.before.samples_per_s.value, effect.after.samples_per_s.value
    value, low, high = predicted(effect, "wall-clock")
    assert value == pytest.approx(after / before - 1, abs=0.01)
    assert value > effect.tokens_per_s.value + 0.1
    assert low < value < high
    assert predicted(effect, "per-device")[0] == pytest.approx(effect.tokens_per_s_per_device.value)


# -- the process ---------------------------------------------------------------------------


def test_a_run_that_an_earlier_loop_started_is_read_from_its_trace(tmp_path):
    trace = recorded(tmp_path / "a", 1)
    assert child.Adopted(trace).wait() == Ended(0, 9.0)
    assert child.Adopted(str(tmp_path / "none")).wait() == Ended(None, None)


def test_a_run_that_was_cut_off_ended_with_its_last_sign_of_life(tmp_path):
    trace = tmp_path / "a"
    gate_runs.write(trace, gate_runs.Kind(steps=3), seed=1)
    update_manifest(trace, ended_ns=None)
    for path in trace.rglob("*"):
        os.utime(path, (5000.0, 5000.0))
    os.utime(trace / "manifest.json", (6000.0, 6000.0))
    assert child.Adopted(str(trace)).wait() == Ended(None, 6000.0)


def test_a_run_is_the_command_line_in_a_process_of_its_own(tmp_path):
    output = tmp_path / "00.log"
    run = child.start(tmp_path / "none.yaml", str(tmp_path / "t"), output, tmp_path, smoke=False)
    assert run.wait().exit_code == 2
    assert "none.yaml" in output.read_text()


@pytest.mark.parametrize(("training", "command"), [(0, 1), (-15, 143), (0, 143)])
def test_a_run_that_nobody_waited_for_has_the_exit_code_of_its_command(tmp_path, training, command):
    """Broken off at step 40 of 100 the training says 0, stopped in order -15 or 0."""
    trace = recorded(tmp_path / "a", 1)
    update_manifest(trace, exit_code=training,
                    notes={"ended": {"exit_code": command, "at_s": 9.0}})  # fmt: skip
    assert child.Adopted(trace).wait() == Ended(command, 9.0)


#: A loop that waits for a run of a minute, as `rlinsight tune` does.
LOOP = """
import subprocess, sys
import polars  # takes the handling of Ctrl-C over
from rlinsight.runs.tune.child import Child

command = [sys.executable, "-c", sys.argv[1]]
Child(subprocess.Popen(command, start_new_session=True)).wait()
"""


def test_ctrl_c_is_passed_on_to_the_run_which_ends_first(tmp_path):
    script = (
        "import pathlib, time\n"
        "try:\n    print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.5); pathlib.Path('ended').touch()\n"
    )
    loop = subprocess.Popen([sys.executable, "-c", LOOP, script], cwd=tmp_path,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    with loop:
        assert loop.stdout.readline() == b"ready\n"
        loop.send_signal(signal.SIGINT)
        _, said = loop.communicate(timeout=30)
    assert (tmp_path / "ended").exists()
    assert b"KeyboardInterrupt" in said


def stands_for_a_run(folder: Path, trace: Path, *options: str) -> subprocess.Popen:
    """A process with the command line of a run, which takes a while to end."""
    program = folder / "rlinsight"
    program.write_text(
        "import pathlib, time\n"
        "try:\n    print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.5); pathlib.Path('ended').touch()\n"
    )
    return subprocess.Popen([sys.executable, program, *options, str(trace)], cwd=folder,
                            stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip


@pytest.fixture
def ctrl_c_after(monkeypatch):
    """Ctrl-C at the n-th time that an adopted run is looked at."""

    def ctrl_c_after(looks: int) -> None:
        left = iter([*[False] * (looks - 1), True])

        def sleep(_seconds: float) -> None:
            if next(left, False):
                raise KeyboardInterrupt

        monkeypatch.setattr(child.time, "sleep", sleep)

    return ctrl_c_after


def test_ctrl_c_is_passed_on_to_an_adopted_run_which_ends_first(tmp_path, ctrl_c_after):
    trace = tmp_path / "t"
    with stands_for_a_run(tmp_path, trace, "run", "--trace") as process:
        assert process.stdout.readline() == b"ready\n"
        reaped = threading.Thread(target=process.wait)
        reaped.start()
        ctrl_c_after(2)
        with pytest.raises(KeyboardInterrupt):
            child.Adopted(str(trace)).wait()
        assert (tmp_path / "ended").exists()
        reaped.join()


def test_a_process_that_only_shows_the_trace_is_not_waited_for(tmp_path):
    trace = recorded(tmp_path / "a", 1)
    with stands_for_a_run(tmp_path, Path(trace), "serve") as process:
        assert process.stdout.readline() == b"ready\n"
        try:
            assert child.running(trace) == []
            assert child.Adopted(trace).wait() == Ended(0, 9.0)
        finally:
            process.kill()


def test_a_run_that_ends_while_it_is_looked_at_has_ended(tmp_path, monkeypatch):
    class Gone:
        info: ClassVar = {"cmdline": ["rlinsight", "run", "--trace", str(tmp_path)]}

        def status(self) -> str:
            raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(child.psutil, "process_iter", lambda _fields: [Gone()])
    assert child.running(str(tmp_path)) == []


def test_a_run_is_known_by_its_command_line_only(monkeypatch):
    class Process:
        def __init__(self, *words: str) -> None:
            self.info = {"cmdline": list(words)}

        def status(self) -> str:
            return psutil.STATUS_RUNNING

    started = Process("python", "-m", "rlinsight", "run", "--profile", "p", "--trace", "/t/00")
    typed = Process("python", "/bin/rlinsight", "run", "--trace", "/t/00", "--smoke")
    others = [
        Process("python", "-m", "rlinsight", "run", "--trace", "/t/01"),
        Process("python", "-m", "rlinsight", "compare", "/t/00", "/t/01"),
        Process("less", "/t/00"),
    ]
    monkeypatch.setattr(child.psutil, "process_iter", lambda _fields: [started, *others, typed])
    assert child.running("/t/00") == [started, typed]


# -- fresher samples -----------------------------------------------------------------------


def rate(change: float, real: str = "no") -> Judged:
    return Judged(change, change - 0.02, change + 0.02, 0.03, real, "the change is below 3%")


def lag(value: float | None, direction: str | None) -> MetricVerdict:
    return MetricVerdict("lag_versions", "versions", "PASS", gates=True, better="lower",
                         reason="", value=value, reference=5.6, direction=direction)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "real", "fell", "kept", "reason"),
    [
        (-0.01, "no", lag(2.1, "better"), "better", "2.1 instead of 5.6 versions old"),
        (0.20, "better", lag(2.1, "better"), "better", "really fresher"),
        (0.01, "no", lag(5.4, "within"), "no", "not really fresher"),
        (0.20, "better", lag(5.4, "within"), "better", "the change is below"),
        (-0.05, "worse", lag(2.1, "better"), "worse", "it costs throughput"),
        (-0.05, "no", lag(2.1, "better"), "worse", "it costs throughput"),
        (0.0, "no", lag(None, None), None, "the lag is not known"),
        (0.0, "no", None, None, "the lag is not known"),
        (0.0, None, lag(2.1, "better"), None, "the change is below"),
    ],
)
def test_what_aims_at_freshness_is_kept_where_the_lag_falls_at_no_cost(
    change, real, fell, kept, reason
):
    found = fresher(rate(change, real), fell)
    assert found.real == kept
    assert reason in found.reason
    assert found.change == change


def test_samples_as_old_as_before_are_not_fresher(tmp_path):
    kept, same = recorded(tmp_path / "a", 1), recorded(tmp_path / "b", 2)
    found = judged(kept, same, "per-device", "freshness")
    assert (found.real, found.reason) == ("no", "samples are not really fresher")
