"""What other nodes recorded, brought here over Ray, and how their clocks differ from ours.

Run as a program of its own, so that Ray's threads and its log stay out of the launcher, and
a cluster that no longer answers can be given up:

    python -m rlinsight.runs.gather TRACE RUN_ID ADDRESS               at the end of a run
    python -m rlinsight.runs.gather TRACE RUN_ID ADDRESS --sample 1.0  from its start on

Each prints one JSON object. The second samples the devices of the other nodes, until its
input ends. Every node is asked separately: one that is lost costs its own files only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rlinsight.runs.node_agent import ask, on_every_node
from rlinsight.trace.clock import Clocks, NodeClock, estimate_offset
from rlinsight.trace.writer import node_name

CHUNK_BYTES: Final = 8 << 20
ROUND_TRIPS: Final = 40


@dataclass
class Gathered:
    """What came of it. `failed` is node -> reason; `clocks` the JSON form of `Clocks`."""

    nodes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    clocks: dict[str, Any] = field(default_factory=dict)


def at_end(trace: Path, run_id: str) -> Gathered:
    """Fetch the files that `trace` lacks from every node, and compare the clocks."""
    result = Gathered()
    _visit(trace, run_id, result, lambda agent, name: _fetch_missing(agent, trace, name, result))
    return result


def from_start(
    trace: Path, run_id: str, interval_s: float, *, sample_here: bool
) -> tuple[Gathered, list[Any]]:
    """Compare the clocks and start sampling devices; return also the agents that sample.

    This node is left out unless `sample_here`: the launcher samples it itself.
    """
    result, here = Gathered(), node_name()
    sampling: list[Any] = []

    def start(agent: Any, name: str) -> None:
        if sample_here or name != here:
            ask(agent.start_sampling.remote(interval_s))
            sampling.append(agent)

    _visit(trace, run_id, result, start)
    return result, sampling


def _visit(trace: Path, run_id: str, result: Gathered, act: Callable[[Any, str], None]) -> None:
    """Compare clocks with every node and let `act` do something there, node by node."""
    here, clocks = node_name(), {}
    for node_id, agent in on_every_node(trace, run_id):
        name = node_id
        try:
            name = ask(agent.node.remote())
            result.nodes.append(name)
            if name != here:
                clocks[name] = NodeClock((estimate_offset(_round_trips(agent)),))
            act(agent, name)
        except Exception as error:
            result.failed[name] = _reason(error)
    if clocks:
        result.clocks = Clocks(here, clocks).to_dict()


def _round_trips(agent: Any) -> list[tuple[int, int, int]]:
    trips = []
    for _ in range(ROUND_TRIPS):
        sent = time.time_ns()
        stamped = ask(agent.stamp.remote())
        trips.append((sent, stamped, time.time_ns()))
    return trips


def _fetch_missing(agent: Any, trace: Path, name: str, result: Gathered) -> None:
    """Fetch what this file system does not show, or shows shorter.

    A file that cannot be read there, or written here, costs itself only. Raises what Ray raises
    when the node does not answer.
    """
    problems: list[str] = []
    for folder, file, size in ask(agent.inventory.remote()):
        target = trace / file
        try:
            if _is_ours(file) or (target.exists() and target.stat().st_size >= size):
                continue
            _fetch(agent, folder, file, size, target)
        except TimeoutError:  # the node is gone, and so is the rest
            raise
        except OSError as error:
            problems.append(f"`{file}`: {_reason(error)}")
            continue
        result.files += 1
        result.bytes += size
    if problems:
        more = f", and {len(problems) - 1} more files" if len(problems) > 1 else ""
        result.failed[name] = problems[0] + more


def _fetch(agent: Any, folder: str, file: str, size: int, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    try:
        with partial.open("wb") as opened:
            for offset in range(0, size, CHUNK_BYTES):
                opened.write(ask(agent.read.remote(folder, file, offset, CHUNK_BYTES)))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)  # no part of a trace


def _is_ours(name: str) -> bool:
    # The launcher writes the manifest and keeps the console output.
    return "/" not in name and not name.endswith((".arrow", ".arrows", ".jsonl"))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says; return 1 when the cluster is out of reach, else 0."""
    options = _parser().parse_args(arguments)
    try:
        import ray

        ray.init(options.address, logging_level="ERROR", log_to_driver=False)
    except Exception as error:
        _print(Gathered(failed={options.address: _reason(error)}))
        return 1
    if options.sample is None:
        _print(at_end(options.trace, options.run_id))
        return 0
    result, sampling = from_start(
        options.trace, options.run_id, options.sample, sample_here=options.sample_here
    )
    _print(result)
    sys.stdin.read()  # the launcher closes it, or has died
    for agent in sampling:
        # A node that is lost by now is reported by the gathering that follows.
        with suppress(Exception):
            ask(agent.stop_sampling.remote())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("run_id")
    parser.add_argument("address")
    parser.add_argument("--sample", type=float, help="seconds between samples of devices")
    parser.add_argument("--sample-here", action="store_true", help="sample this node too")
    return parser


def _print(result: Gathered) -> None:
    sys.stdout.write(json.dumps(asdict(result)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
