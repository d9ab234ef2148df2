"""The real command line where its output meets a reader that leaves, a full disk, odd names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from timelines import Timeline

RLINSIGHT = f"{sys.executable} -m rlinsight"


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    timeline = Timeline(tmp_path_factory.mktemp("runs") / "trace")
    timeline.step(1, 0, 10)
    timeline.span("trainer", "update_actor", 4, 10, step=1)
    timeline.writer.close()
    return timeline.path


def shell(command: str, **options) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=120, **options
    )


@pytest.mark.parametrize("command", ["validate {}", "validate {} --json", "--help"])
def test_a_reader_that_leaves_changes_no_exit_code(trace, command):
    done = shell(f"{RLINSIGHT} {command.format(trace)} | true")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", ["validate {}", "validate {} --json"])
def test_an_output_that_cannot_be_written_is_one_sentence(trace, command):
    done = shell(f"{RLINSIGHT} {command.format(trace)} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == b"error: cannot go on: No space left on device, in standard output\n"


def test_closed_outputs_are_no_failure(trace):
    assert shell(f"{RLINSIGHT} validate {trace} >&- 2>&-").returncode == 0


def test_a_name_that_is_no_text_is_shown_escaped(trace):
    folder = os.path.join(os.fsencode(trace.parent), b"\xff run")
    os.rename(os.fsencode(trace), folder)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rlinsight", "validate", folder], capture_output=True
        )
    finally:
        os.rename(folder, os.fsencode(trace))
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\udcff run: valid" in done.stdout
