"""Real runs of the wrapper: real processes, real signals, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import rlinsight
from rlinsight.runs import processes

CLI = Path(sysconfig.get_path("scripts")) / "rlinsight"

TRAIN = """
    import time
    import rlinsight

    def train(steps):
        for step in range(1, steps + 1):
            with rlinsight.span("step", lane="trainer", step=step):
                with rlinsight.span("update_actor", lane="trainer", step=step):
                    time.sleep(0.05)
            print("trained", step, flush=True)
    """


class Started:
    """`rlinsight run -- python script.py`, going on."""

    def __init__(self, folder: Path, script: str, *options: str) -> None:
        self.folder = folder
        program = folder / "script.py"
        program.write_text(textwrap.dedent(TRAIN) + textwrap.dedent(script))
        self.process = subprocess.Popen(
            [CLI, "run", "--trace", str(folder / "trace"), *options, "--", sys.executable, program],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> subprocess.CompletedProcess[str]:
        out, err = self.process.communicate(timeout=90)
        return subprocess.CompletedProcess([], self.process.returncode, out, err)

    def pid_from(self, name: str) -> int:
        """Wait until the script has written a pid into this file."""
        path = self.folder / name
        deadline = time.monotonic() + 30
        while not (path.exists() and path.read_text().endswith("\n")):
            assert time.monotonic() < deadline, f"{name} never came"
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.05)
        return int(path.read_text())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@pytest.fixture
def start(tmp_path):
    started = []

    def start(script: str, *options: str) -> Started:
        started.append(Started(tmp_path, script, *options))
        return started[-1]

    yield start
    for run in started:
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate()


def is_running(pid: int) -> bool:
    found = processes.find(pid)
    return found is not None and processes.is_alive(found)


def manifest(folder: Path) -> dict:
    return json.loads((folder / "trace" / "manifest.json").read_text())


# -- how it ends ---------------------------------------------------------------------------


def test_a_wrapped_command_is_recorded_and_its_output_is_shown_and_kept(start, tmp_path):
    done = start("train(3)").wait()
    assert done.returncode == 0, done.stderr
    assert "trained 3\n" in done.stdout
    assert (tmp_path / "trace" / "console.log").read_text() == "trained 1\ntrained 2\ntrained 3\n"
    trace = rlinsight.open(tmp_path / "trace")
    counts = trace.spans.collect()["activity"].value_counts().rows()
    assert sorted(counts) == [("step", 3), ("update_actor", 3)]
    assert not list((tmp_path / "trace").rglob("*.arrows"))
    last = done.stdout.splitlines()[-2:]
    assert re.fullmatch(r"finished after \d+ s: trace", last[0])
    assert last[1] == "next: rlinsight analyze trace"


def test_the_manifest_says_what_ran_and_how_it_ended(start, tmp_path):
    start("train(1); raise SystemExit(3)").wait()
    kept = manifest(tmp_path)
    assert kept["exit_code"] == 3
    assert kept["started_ns"] < kept["ended_ns"]
    assert kept["notes"]["launch"]["command"][0] == sys.executable
    assert kept["notes"]["launch"]["wrapped"] is True
    assert kept["versions"]["rlinsight"] == rlinsight.__version__
    assert {p["run_id"] for p in kept["processes"]} == {kept["run_id"]}


def test_the_exit_code_is_the_commands_and_its_last_words_are_shown(start):
    done = start("train(1); raise ValueError('no such model')").wait()
    assert done.returncode == 1
    assert "the last lines of its output:" in done.stdout
    assert "  ValueError: no such model" in done.stdout
    assert "failed with exit code 1 after" in done.stdout


def test_a_trace_that_cannot_be_read_any_more_does_not_hide_the_exit_code(start):
    newer = """
        import os, pathlib
        pathlib.Path(os.environ["RLINSIGHT_TRACE"], "manifest.json").write_text(
            '{"schema_version": 99}'
        )
        raise SystemExit(3)
        """
    done = start(newer).wait()
    assert done.returncode == 3
    assert "failed with exit code 3" in done.stdout
    assert "found version 99" in done.stdout
    assert done.stderr == ""


def test_a_command_killed_by_a_signal_ends_as_in_a_shell(start):
    done = start("import os; train(1); os.kill(os.getpid(), 9)").wait()
    assert done.returncode == 128 + 9
    assert "killed by SIGKILL" in done.stdout


def test_json_has_standard_output_to_itself(start):
    done = start("train(2)", "--json").wait()
    result = json.loads(done.stdout)
    assert result["exit_code"] == 0
    assert result["trace"] == "trace"
    assert result["report"]["steps"]
    assert "trained 2" in done.stderr


def test_a_command_that_records_nothing_is_told_why(start):
    done = start("print('hello')").wait()
    assert done.returncode == 0
    assert "nothing was recorded. Possible causes:" in done.stdout
    assert "rlinsight doctor" in done.stdout


def test_environment_values_reach_the_command_and_not_the_trace(start, tmp_path):
    (tmp_path / "c.yaml").write_text("environment: {API_KEY: s3cret}\n")
    done = start("import os; print('got', os.environ['API_KEY'])", "-p", "c.yaml").wait()
    assert "got s3cret" in done.stdout
    assert "s3cret" not in (tmp_path / "trace" / "manifest.json").read_text()
    assert "API_KEY" in (tmp_path / "trace" / "manifest.json").read_text()


# -- signals -------------------------------------------------------------------------------

DAEMON = """
    import os, subprocess, sys
    # In a session of its own and without a parent: what Ray's daemons do.
    code = "import os,time; open('daemon.pid','w').write(f'{os.getpid()}\\\\n'); time.sleep(300)"
    subprocess.run(
        [sys.executable, "-c",
         "import subprocess,sys; subprocess.Popen([sys.executable,'-c',sys.argv[1]],"
         "start_new_session=True)", code],
    )
    """


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_lets_the_command_clean_up(start, tmp_path, number, code):
    run = start(
        """
        train(1)
        open("main.pid", "w").write(f"{__import__('os').getpid()}\\n")
        try:
            train(10**6)
        except KeyboardInterrupt:
            print("cleaning up", flush=True)
            open("cleaned", "w")
        """
    )
    pid = run.pid_from("main.pid")
    run.signal(number)
    done = run.wait()
    assert done.returncode == code
    assert (tmp_path / "cleaned").exists()
    assert f"stopped by {number.name}" in done.stdout
    assert not is_running(pid)
    assert rlinsight.open(tmp_path / "trace").spans.collect().height > 0


def test_nothing_that_was_started_is_left_and_nothing_else_is_touched(start, tmp_path):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    try:
        run = start(textwrap.dedent(DAEMON) + "\ntrain(10**6)")
        daemon = run.pid_from("daemon.pid")
        assert psutil.Process(daemon).ppid() != run.process.pid
        run.signal(signal.SIGINT)
        run.wait()
        assert not is_running(daemon)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_daemon_does_not_outlive_a_command_that_ended_well(start):
    run = start(textwrap.dedent(DAEMON) + "\ntrain(40)")
    daemon = run.pid_from("daemon.pid")
    assert run.wait().returncode == 0
    assert not is_running(daemon)


def test_a_second_signal_kills_what_does_not_listen(start):
    run = start(
        """
        import os, signal, subprocess, sys
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        open("child.pid", "w").write(f"{child.pid}\\n")
        train(10**6)
        """
    )
    child = run.pid_from("child.pid")
    run.signal(signal.SIGINT)
    # Ours says that it stops the run; only then is a second signal a second one.
    for line in run.process.stdout:
        if "interrupt again to kill it" in line:
            break
    run.signal(signal.SIGINT)
    began = time.monotonic()
    assert run.wait().returncode == 130
    assert not is_running(child)
    assert time.monotonic() - began < 20  # the first signal's patience was not waited for


# -- stalls and deaths ---------------------------------------------------------------------


def test_a_stalled_run_is_ended_and_says_where_each_lane_stands(start, tmp_path):
    run = start(
        """
        open("main.pid", "w").write(f"{__import__('os').getpid()}\\n")
        train(2)
        with rlinsight.span("wait_samples", lane="trainer", step=3):
            while True:
                rlinsight.counter("queue_depth", 0)
                print("still waiting", flush=True)
                time.sleep(0.2)
        """,
        "--stall-timeout",
        "3",
    )
    pid = run.pid_from("main.pid")
    done = run.wait()
    assert done.returncode == 1
    assert "ended because it made no progress" in done.stdout
    assert re.search(r"  trainer: wait_samples of step 3, open for \d+ s", done.stdout)
    assert not is_running(pid)
    kept = manifest(tmp_path)
    assert kept["exit_code"] is not None
    assert kept["notes"]["ended"]["exit_code"] == 1, "that of the command, which nobody waited for"
    assert time.time() - 60 < kept["notes"]["ended"]["at_s"] < time.time()


WORKER = """
    import os, subprocess, sys
    code = '''
    import os, time, rlinsight
    rlinsight.start("unused", lane="replica0")
    with rlinsight.span("wake", lane="replica0"):
        time.sleep(0.1)
    time.sleep(1.2)  # longer than it takes to be written
    open("worker.pid", "w").write(f"{os.getpid()}\\\\n")
    time.sleep(300)
    '''
    import textwrap
    worker = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    """


def test_the_lane_of_a_killed_process_is_named(start):
    run = start(
        textwrap.dedent(WORKER)
        + "\ntrain(10)\nworker.wait()\ntime.sleep(2)\ntrain(10)\nraise SystemExit(7)"
    )
    os.kill(run.pid_from("worker.pid"), signal.SIGKILL)
    done = run.wait()
    assert done.returncode == 7
    assert re.search(r"`replica0`: .* died; last event: wake, ended \d+ s ago", done.stdout)
    assert "`trainer`" not in done.stdout


def test_a_process_that_its_parent_ends_at_the_end_is_not_blamed(start):
    run = start(
        textwrap.dedent(WORKER)
        + "\nwhile not os.path.exists('worker.pid'):\n    train(1)\n"
        + "rlinsight.stop()\ntime.sleep(0.3)\nworker.kill()\nworker.wait()\nraise SystemExit(7)"
    )
    done = run.wait()
    assert done.returncode == 7
    assert "died" not in done.stdout


# -- places --------------------------------------------------------------------------------


def test_a_trace_url_is_filled_when_the_run_has_ended(start, tmp_path):
    url = f"file://{tmp_path}/bucket/run"
    run = start("train(2)", "--trace", url)
    done = run.wait()
    assert done.returncode == 0, done.stderr
    assert f"next: rlinsight analyze {url}" in done.stdout
    assert rlinsight.open(url).spans.collect().height == 4
    assert (tmp_path / "bucket" / "run" / "console.log").read_text() == "trained 1\ntrained 2\n"


def test_usage_errors_start_nothing(tmp_path):
    for arguments, message in (
        ([], "nothing to run"),
        (["--smoke", "--", "true"], "`--smoke` changes batch sizes"),
        (["--", "no-such-program-here"], "command: `no-such-program-here` is not an executable"),
        (["-p", "no.yaml"], "`no.yaml` cannot be read"),
    ):
        done = subprocess.run(
            [CLI, "run", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_check_prints_the_plan_and_starts_nothing(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "mode: sync\nmodel: example\ndata: example\ndevice: cpu\n"
        "overrides: {data.train_batch_size: 8, actor_rollout_ref.actor.ppo_mini_batch_size: 8,"
        " actor_rollout_ref.actor.use_dynamic_bsz: true,"
        " actor_rollout_ref.rollout.tensor_model_parallel_size: 1}\n"
    )
    done = subprocess.run(
        [CLI, "run", "-p", "c.yaml", "--check"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "-m verl.trainer.main_ppo" in done.stdout
    assert "preflight passed" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_schema_is_json():
    done = subprocess.run([CLI, "run", "--schema"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["title"] == "rlinsight run"
