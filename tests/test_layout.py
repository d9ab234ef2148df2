"""The rules that keep the four rooms apart, and the package light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {
    "rlinsight": "rlinsight",
    "collectors": "rlinsight.collectors",
    "analyzers": "rlinsight.analyzers",
    "webapp": "rlinsight.webapp",
}
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
HEAVY = {"torch", "ray", "dash", "polars", "verl", "vllm", "pyarrow", "scipy", "pydantic"}


def module_name(path: Path) -> str:
    room, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([ROOMS[room], *(part for part in rest if part != "__init__")])


def imported(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def may_import(module: str, target: str) -> bool:
    """The table of the design: what each room may import of the others."""
    base = {"rlinsight", "rlinsight.errors"}
    if target in base or target.startswith("rlinsight.trace"):
        return True
    room = ".".join(module.split(".")[:2])
    if room in ("rlinsight.collectors", "rlinsight.analyzers"):
        return target.startswith(room)
    if room == "rlinsight.webapp":
        # The words and units of a result are the same in every rendering of it.
        words = {"rlinsight.report.units", "rlinsight.report.verdict",
                 "rlinsight.report.compare"}  # fmt: skip
        return target in words or target.startswith((room, "rlinsight.analyzers"))
    if room == "rlinsight.baselines":
        return target.startswith(room)
    if room in ("rlinsight.__main__", "rlinsight.cli", "rlinsight.runs", "rlinsight.report"):
        return True
    # The trace may hand itself to the analyzers, and only inside a function.
    return target.startswith("rlinsight.analyzers") and module == "rlinsight.trace.reader"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_rooms_import_only_what_they_may(path):
    module = module_name(path)
    wrong = {
        target
        for target in imported(path)
        if target.split(".")[0] == "rlinsight" and not may_import(module, target)
    }
    assert not wrong


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.is_relative_to(ROOT / "collectors")], ids=module_name
)
def test_what_runs_in_a_training_process_imports_only_pyarrow(path):
    top = {name.split(".")[0] for name in imported(path, top_level_only=True)}
    assert top <= set(sys.stdlib_module_names) | {"pyarrow", "rlinsight"}


def test_every_package_is_installed():
    """A folder that is missing here would be missing from a wheel."""
    # `tomllib` is not in Python 3.10.
    text = (ROOT / "pyproject.toml").read_text()
    (block,) = re.findall(r"^packages = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    listed = re.findall(r'"([\w.]+)"', block)
    found = sorted({module_name(p) for p in SOURCES if p.name == "__init__.py"})
    assert sorted(listed) == found


@pytest.mark.parametrize("statement", ["import rlinsight", "import rlinsight.cli"])
def test_importing_stays_light(statement):
    code = f"import sys; {statement}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in out.stdout.split()}
    assert not loaded & HEAVY


def test_recording_in_a_training_process_loads_only_pyarrow(tmp_path):
    code = (
        f"import sys, rlinsight\nwith rlinsight.recording({str(tmp_path / 't')!r}):\n"
        "    rlinsight.counter('x', 1)\nprint(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in out.stdout.split()}
    assert not loaded & (HEAVY - {"pyarrow"})
