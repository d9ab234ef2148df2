"""What is on disk when a recording process ends, forks or dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from live_rows import process_files, rows


def run_script(folder: Path, body: str, **options) -> subprocess.Popen:
    script = f"import rlinsight, os, signal, time, sys\nFOLDER = {str(folder)!r}\n"
    return subprocess.Popen(
        [sys.executable, "-c", script + textwrap.dedent(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_an_interval_that_never_ends_survives_kill_9(tmp_path):
    child = run_script(
        tmp_path / "t",
        """
        with rlinsight.recording(FOLDER, lane="trainer") as w:
            with rlinsight.span("advantage", step=7):
                pass
            rlinsight.begin("update_actor", step=7)
            w.begin_request(request_id="r1", lane="replica0", prompt_tokens=5)
            print("ready", flush=True)
            time.sleep(60)
        """,
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(1.2)
    child.kill()
    child.communicate()
    spans = {r["activity"]: r for r in rows(tmp_path / "t", "spans", torn=True)}
    assert spans["advantage"]["end_ns"] is not None
    assert spans["update_actor"]["end_ns"] is None
    (request,) = rows(tmp_path / "t", "requests", torn=True)
    assert (request["end_ns"], request["prompt_tokens"]) == (None, 5)
    assert process_files(tmp_path / "t")[0]["ended_ns"] is None


def test_what_was_recorded_is_on_disk_after_a_normal_exit(tmp_path):
    child = run_script(
        tmp_path / "t",
        """
        rlinsight.start(FOLDER)
        for i in range(1000):
            rlinsight.counter("x", i)
        """,
    )
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert len(rows(tmp_path / "t", "counters")) == 1000


def test_a_graceful_signal_leaves_a_complete_trace(tmp_path):
    child = run_script(
        tmp_path / "t",
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        rlinsight.start(FOLDER)
        for i in range(100):
            rlinsight.counter("x", i)
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    child.stdout.readline()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == 3
    assert len(rows(tmp_path / "t", "counters")) == 100


def test_a_managed_run_records_from_the_environment(tmp_path):
    child = run_script(
        tmp_path / "ignored",
        """
        with rlinsight.span("update_actor"):
            pass
        """,
        env={**os.environ, "RLINSIGHT_TRACE": str(tmp_path / "t"), "RLINSIGHT_NODE": "n-1/x"},
    )
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    (path,) = (tmp_path / "t" / "live").glob("spans-*.arrows")
    assert path.name == f"spans-n_1_x-{child.pid}.arrows"


def test_a_forked_child_records_into_its_own_files(tmp_path):
    child = run_script(
        tmp_path / "t",
        """
        rlinsight.start(FOLDER, lane="parent")
        rlinsight.counter("x", 1)
        pid = os.fork()
        if pid == 0:
            rlinsight.counter("x", 2)
            rlinsight.stop()
            os._exit(0)
        os.waitpid(pid, 0)
        rlinsight.counter("x", 3)
        """,
    )
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert sorted(r["value"] for r in rows(tmp_path / "t", "counters")) == [1.0, 2.0, 3.0]
    assert len(process_files(tmp_path / "t")) == 2


def test_a_forked_child_that_exits_as_usual_leaves_its_parents_rows_alone(tmp_path):
    """Exit handlers run in it too: the rows that were still buffered are the parent's."""
    child = run_script(
        tmp_path / "t",
        """
        rlinsight.start(FOLDER, flush_interval_s=60)
        rlinsight.counter("x", 1)
        pid = os.fork()
        if pid == 0:
            rlinsight.counter("x", 2)
            sys.exit(0)
        os.waitpid(pid, 0)
        """,
    )
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert sorted(r["value"] for r in rows(tmp_path / "t", "counters")) == [1.0, 2.0]


def test_a_writer_that_was_closed_does_not_start_again_in_a_forked_child(tmp_path):
    child = run_script(
        tmp_path / "t",
        """
        with rlinsight.TraceWriter(FOLDER) as writer:
            writer.counter("x", 1)
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        os.waitpid(pid, 0)
        """,
    )
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert len(process_files(tmp_path / "t")) == 1
