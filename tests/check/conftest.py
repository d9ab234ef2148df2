"""Traces of known making and a baseline with one of them, for `rlinsight check`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gating import cli, gate_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Traces of known making: two equal runs and a slowed one."""
    folder = tmp_path_factory.mktemp("runs")
    kinds = {
        "first": (gate_runs.Kind(), 1),
        "equal": (gate_runs.Kind(), 2),
        "slow": (gate_runs.Kind(slow={"update_actor": 1.8}), 3),
    }
    return {name: gate_runs.write(folder / name, *kind) for name, kind in kinds.items()}


@pytest.fixture(scope="session")
def accepted(tmp_path_factory, runs) -> Path:
    folder = tmp_path_factory.mktemp("accepted") / "b"
    assert cli("baseline", "add", runs["first"], "--to", folder).code == 0
    return folder


@pytest.fixture
def baseline(tmp_path, accepted) -> Path:
    """A folder of its own with one accepted run."""
    return Path(shutil.copytree(accepted, tmp_path / "b"))
