"""The package is whole however it is found: installed, or in a checkout that a process began in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INIT = Path(__file__).parent.parent / "rlinsight/__init__.py"
FOUND = "import rlinsight.collectors as found; print(found.__file__)"


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (("collectors",), "collectors"),
        (("collectors", "rlinsight/collectors"), "rlinsight/collectors"),
    ],
    ids=["checkout", "installed, beside another package of that name"],
)
def test_a_process_finds_all_of_it_from_the_folder_that_it_began_in(tmp_path, there, found):
    """`python -m` and `python -c` look into that folder first."""
    (tmp_path / "rlinsight").mkdir()
    shutil.copy(INIT, tmp_path / "rlinsight")
    for folder in there:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-c", FOUND], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == tmp_path / found / "__init__.py"
