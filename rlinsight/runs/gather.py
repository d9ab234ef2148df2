"""What other nodes recorded, brought here over Ray, and how their clocks differ from ours.

Run as a program of its own, so that Ray's threads and its log stay out of the launcher, and
a cluster that no longer answers can be given up:

    python -m rlinsight.runs.gather TRACE RUN_ID ADDRESS [--clocks-only]

It prints one JSON object. Every node is asked separately: one that is lost costs its own
files only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rlinsight.trace.clock import Clocks, NodeClock, estimate_offset
from rlinsight.trace.writer import node_name

CHUNK_BYTES: Final = 8 << 20
ROUND_TRIPS: Final = 40
_NODE_TIMEOUT_S: Final = 60.0


@dataclass
class Gathered:
    """What came of it. `failed` is node -> reason; `clocks` the JSON form of `Clocks`."""

    nodes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    clocks: dict[str, Any] = field(default_factory=dict)


class NodeAgent:
    """Runs on another node, and finds what this run has recorded there.

    That is the same path as on the launcher's node, and the folder `RLINSIGHT_TRACE` of a Ray
    node that was started with it, if that holds records of this run and not of an older one.
    """

    def __init__(self, trace: str, run_id: str) -> None:
        folders = [Path(trace)]
        own = os.environ.get("RLINSIGHT_TRACE")
        if own and Path(own) != folders[0] and _holds_run(Path(own), run_id):
            folders.append(Path(own))
        self._folders = folders

    def node(self) -> str:
        """Return the node's name, as used in file names."""
        return node_name()

    def stamp(self) -> int:
        """Return this node's clock, ns since the epoch."""
        return time.time_ns()

    def inventory(self) -> list[tuple[str, str, int]]:
        """Return the files of the trace: folder, path relative to it, bytes."""
        return [
            (str(folder), path.relative_to(folder).as_posix(), path.stat().st_size)
            for folder in self._folders
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        ]

    def read(self, folder: str, name: str, offset: int, size: int) -> bytes:
        """Return a part of one of the files."""
        with (Path(folder) / name).open("rb") as file:
            file.seek(offset)
            return file.read(size)


def _holds_run(folder: Path, run_id: str) -> bool:
    for path in folder.glob("live/process-*.json"):
        try:
            if json.loads(path.read_bytes()).get("run_id") == run_id:
                return True
        except (OSError, ValueError, AttributeError):
            continue
    return False


def gather(trace: Path, run_id: str, address: str, *, clocks_only: bool = False) -> Gathered:
    """Ask every node of the cluster at `address`; files that `trace` lacks are fetched.

    Raises ConnectionError when the cluster cannot be reached.
    """
    import ray

    ray.init(address, logging_level="ERROR", log_to_driver=False)
    try:
        return _gather(trace, run_id, clocks_only=clocks_only)
    finally:
        ray.shutdown()


def _gather(trace: Path, run_id: str, *, clocks_only: bool) -> Gathered:
    result, here, clocks = Gathered(), node_name(), {}
    for node_id, agent in _agents(trace, run_id):
        name = node_id
        try:
            name = _get(agent.node.remote())
            result.nodes.append(name)
            if name != here:
                clocks[name] = NodeClock((estimate_offset(_round_trips(agent)),))
            if not clocks_only:
                _fetch_missing(agent, trace, result)
        except Exception as error:
            result.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    if clocks:
        result.clocks = Clocks(here, clocks).to_dict()
    return result


def _agents(trace: Path, run_id: str) -> Iterator[tuple[str, Any]]:
    """Yield (node id, agent) of every living node, this machine's among them."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(NodeAgent)
    for node in ray.nodes():
        if node["Alive"]:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = remote.options(num_cpus=0, scheduling_strategy=where)
            yield node["NodeID"], options.remote(str(trace), run_id)


def _get(reference: Any) -> Any:
    import ray

    return ray.get(reference, timeout=_NODE_TIMEOUT_S)


def _round_trips(agent: Any) -> list[tuple[int, int, int]]:
    trips = []
    for _ in range(ROUND_TRIPS):
        sent = time.time_ns()
        stamped = _get(agent.stamp.remote())
        trips.append((sent, stamped, time.time_ns()))
    return trips


def _fetch_missing(agent: Any, trace: Path, result: Gathered) -> None:
    """Fetch what this file system does not show, or shows shorter."""
    for folder, name, size in _get(agent.inventory.remote()):
        target = trace / name
        if _is_ours(name) or (target.exists() and target.stat().st_size >= size):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.partial")
        with partial.open("wb") as file:
            for offset in range(0, size, CHUNK_BYTES):
                file.write(_get(agent.read.remote(folder, name, offset, CHUNK_BYTES)))
        partial.replace(target)
        result.files += 1
        result.bytes += size


def _is_ours(name: str) -> bool:
    # The launcher writes the manifest and keeps the console output.
    return "/" not in name and not name.endswith((".arrow", ".arrows", ".jsonl"))


def main(arguments: list[str] | None = None) -> int:
    """Gather, print the result as JSON, and return 0, or 1 when the cluster is out of reach."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("run_id")
    parser.add_argument("address")
    parser.add_argument("--clocks-only", action="store_true")
    options = parser.parse_args(arguments)
    try:
        run = (options.trace, options.run_id, options.address)
        result = gather(*run, clocks_only=options.clocks_only)
    except Exception as error:
        result = Gathered(failed={options.address: f"{type(error).__name__}: {error}"})
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return 1 if options.address in result.failed else 0


if __name__ == "__main__":
    sys.exit(main())
