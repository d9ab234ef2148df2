"""What the launcher does on the nodes of a Ray cluster: one small actor on each."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rlinsight.runs.device_sampler import DeviceSampler
from rlinsight.trace.writer import node_name

_ANSWERS_WITHIN_S: Final = 60.0


class NodeAgent:
    """Runs on one node, and finds what this run has recorded there.

    That is the same path as on the launcher's node, and the folder `RLINSIGHT_TRACE` of a Ray
    node that was started with it, if that holds records of this run and not of an older one.
    """

    def __init__(self, trace: str, run_id: str) -> None:
        self._run_id = run_id
        self._folders = [Path(trace)]
        own = os.environ.get("RLINSIGHT_TRACE")
        if own and Path(own) != self._folders[0] and _belongs_to(Path(own), run_id):
            self._folders.append(Path(own))
        self._sampler: DeviceSampler | None = None

    def node(self) -> str:
        """Return the node's name, as used in file names."""
        return node_name()

    def stamp(self) -> int:
        """Return this node's clock, ns since the epoch."""
        return time.time_ns()

    def start_sampling(self, interval_s: float) -> None:
        """Sample the node's devices until `stop_sampling`, or until this actor ends."""
        self._sampler = DeviceSampler(self._folders[-1], self._run_id, interval_s, node_name())
        self._sampler.start()

    def stop_sampling(self) -> None:
        """End the sampling."""
        if self._sampler is not None:
            self._sampler.stop()

    def inventory(self) -> list[tuple[str, str, int]]:
        """Return the files of the trace: folder, path relative to it, bytes."""
        found = ((folder, path) for folder in self._folders for path in sorted(folder.rglob("*")))
        return [
            (str(folder), path.relative_to(folder).as_posix(), size)
            for folder, path in found
            if (size := _size(path)) is not None
        ]

    def read(self, folder: str, name: str, offset: int, size: int) -> bytes:
        """Return a part of one of the files."""
        with (Path(folder) / name).open("rb") as file:
            file.seek(offset)
            return file.read(size)


def _size(path: Path) -> int | None:
    """Return the size of a file; None for what is none, or is not there any more."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def on_every_node(trace: Path, run_id: str) -> Iterator[tuple[str, Any]]:
    """Yield (node id, agent) of every living node of the cluster Ray is connected to."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(NodeAgent)
    for node in ray.nodes():
        if node["Alive"]:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = remote.options(num_cpus=0, scheduling_strategy=where)
            yield node["NodeID"], options.remote(str(trace), run_id)


def ask(reference: Any) -> Any:
    """Return an agent's answer. Raises what Ray raises, also when none comes."""
    import ray

    return ray.get(reference, timeout=_ANSWERS_WITHIN_S)


def _belongs_to(folder: Path, run_id: str) -> bool:
    if os.environ.get("RLINSIGHT_RUN_ID") == run_id:
        return True
    for path in folder.glob("live/process-*.json"):
        try:
            if json.loads(path.read_bytes()).get("run_id") == run_id:
                return True
        except (OSError, ValueError, AttributeError):
            continue
    return False
