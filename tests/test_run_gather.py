"""Files of another node: one that cannot be fetched costs itself, a node that is gone the rest."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rlinsight.runs import gather, node_agent
from rlinsight.runs.gather import Gathered
from rlinsight.runs.node_agent import NodeAgent


def remote(method):
    return SimpleNamespace(remote=lambda *arguments: lambda: method(*arguments))


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Another node with files of the run, asked without Ray."""
    there = tmp_path / "there"
    (there / "live").mkdir(parents=True)
    for name in ("a", "b", "c"):
        (there / "live" / f"spans-n1-{name}.arrows").write_bytes(name.encode() * 3)
    monkeypatch.setattr(gather, "ask", lambda call: call())
    monkeypatch.setattr(gather, "CHUNK_BYTES", 2)
    agent = NodeAgent(str(there), "r")
    return SimpleNamespace(inventory=remote(agent.inventory), read=remote(agent.read), there=there)


def fetched(trace: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (trace / "live").iterdir()}


def test_every_file_that_is_not_here_is_fetched(node, tmp_path):
    here, result = tmp_path / "here", Gathered()
    gather._fetch_missing(node, here, "n1", result)
    assert (result.files, result.bytes, result.failed) == (3, 9, {})
    assert fetched(here)["spans-n1-b.arrows"] == b"bbb"


def test_a_file_that_is_gone_meanwhile_costs_itself_only(node, tmp_path):
    """It was listed, and is removed before it is read."""
    read = node.read.remote

    def removing(folder, name, offset, size):
        if "-b." in name:
            (node.there / name).unlink(missing_ok=True)
        return read(folder, name, offset, size)

    node.read = SimpleNamespace(remote=removing)
    here, result = tmp_path / "here", Gathered()
    gather._fetch_missing(node, here, "n1", result)
    assert sorted(fetched(here)) == ["spans-n1-a.arrows", "spans-n1-c.arrows"]  # nor a part of it
    assert result.files == 2
    assert result.failed["n1"].startswith("`live/spans-n1-b.arrows`: FileNotFoundError")


def test_a_node_that_does_not_answer_is_not_asked_for_the_rest(node, tmp_path):
    asked = []

    def silent():
        raise TimeoutError("no answer")

    def read(_folder, name, *_):
        asked.append(name)
        return silent

    node.read = SimpleNamespace(remote=read)
    here, result = tmp_path / "here", Gathered()
    with pytest.raises(TimeoutError):
        gather._fetch_missing(node, here, "n1", result)
    assert len(asked) == 1
    assert fetched(here) == {}


def test_what_vanishes_while_it_is_listed_is_not_listed(node, monkeypatch):
    """A link to nowhere stands for a file that was removed between two looks."""
    (node.there / "live" / "gone").symlink_to(node.there / "nowhere")
    assert len(NodeAgent(str(node.there), "r").inventory()) == 3
    assert node_agent._size(node.there) is None
