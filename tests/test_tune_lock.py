"""One loop for one folder, however the loop before it ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlinsight.errors import ConfigError
from rlinsight.runs.tune import lock
from rlinsight.runs.tune.lock import alone

HOLDER = """
import sys, time
from pathlib import Path
from rlinsight.runs.tune.lock import alone
with alone(Path(sys.argv[1]), print):
    print("ready", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, folder], cwd=folder.parent,
                               stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout.readline() == b"ready\n"
    return process


def test_a_second_loop_is_refused_until_the_first_is_killed(tmp_path):
    folder = tmp_path / "t"
    with holder(folder) as first:
        with pytest.raises(ConfigError, match=f"`rlinsight tune` as process {first.pid} on "):
            alone(folder, print).__enter__()
        first.kill()
    with alone(folder, print):
        assert f"process {os.getpid()} on" in (folder / "tuning.lock").read_text()
    with alone(folder, print):
        pass


def test_a_file_system_without_locks_is_said_and_no_reason_to_stop(tmp_path, monkeypatch):
    def refuse(_file: int, _how: int) -> None:
        raise OSError(38, "Function not implemented")

    said: list[str] = []
    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with alone(tmp_path, said.append):
        pass
    assert "cannot be locked (Function not implemented)" in said[0]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write .*tuning\.lock"):
        alone(tmp_path / "file/t", print).__enter__()
