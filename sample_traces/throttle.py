"""Give the engine of one replica its cores for a share of the time only, as a cgroup quota does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

import rlinsight
from rlinsight.errors import TraceError

_PERIOD_S = 0.1
#: What vLLM calls the process that computes; its name may be cut short.
_ENGINE = "VLLM::Engine"


@contextmanager
def throttled(trace: Path, *, replica: str, share: float) -> Iterator[None]:
    """Stop and continue the engine of `replica` of a run that records into `trace`.

    It runs for `share` of each tenth of a second, from its first request on. Ends the program
    where no such engine was found.
    """
    over, found = threading.Event(), threading.Event()
    thread = threading.Thread(target=_throttle, args=(trace, replica, share, over, found))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if not found.is_set():
        raise SystemExit(f"no engine of `{replica}` was found to slow down")


def _throttle(
    trace: Path, replica: str, share: float, over: threading.Event, found: threading.Event
) -> None:
    workers: list[psutil.Process] = []
    while not workers and not over.wait(1.0):
        workers = _workers(trace, replica)
    while workers and not over.is_set():
        found.set()
        try:
            for worker in workers:
                worker.suspend()
            time.sleep(_PERIOD_S * (1 - share))
            for worker in workers:
                worker.resume()
            time.sleep(_PERIOD_S * share)
        except psutil.NoSuchProcess:
            return  # the run is over


def _workers(trace: Path, replica: str) -> list[psutil.Process]:
    """Return the engine's worker processes once the replica has served a request."""
    try:
        opened = rlinsight.open(trace)
        served = set(opened.requests.collect()["lane"])
        (server,) = (lane.pid for lane in opened.topology.lanes if lane.id == replica)
        children = psutil.Process(server).children(recursive=True)
    except (TraceError, ValueError, psutil.NoSuchProcess):
        return []
    return [c for c in children if replica in served and c.name().startswith(_ENGINE)]
