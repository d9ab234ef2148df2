"""`python -m rlinsight.collectors.devices TRACE`: the sampler process of one node."""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rlinsight.collectors.devices.sampler import Sampler, Watch, open_sources
from rlinsight.trace.writer import TraceWriter

#: Rarer than in a training process: a sampler that is killed loses that much at most.
_FLUSH_S: Final = 2.0


def main(arguments: list[str]) -> int:
    """Sample until told to stop, until the run's launcher is gone, or its trace folder is."""
    options = _parser().parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options.trace.mkdir(parents=True, exist_ok=True)
    with _crash_report(options.trace):
        _sample(options, stop)
    return 0


@contextmanager
def _crash_report(trace: Path) -> Iterator[None]:
    """Keep where a driver library crashed; after an ordinary end there is no such file."""
    path = trace / f"sampler-crash-{os.getpid()}.txt"
    with path.open("w") as file:
        faulthandler.enable(file)
        try:
            yield
        finally:
            faulthandler.disable()
    path.unlink(missing_ok=True)


def _sample(options: argparse.Namespace, stop: threading.Event) -> None:
    writer = TraceWriter(
        options.trace,
        run_id=options.run_id,
        node=options.node,
        on_full="drop",
        flush_interval_s=_FLUSH_S,
    )
    if options.gap:
        attrs = {"source": "sampler", "query": "sampler"}
        writer.marker("gap", lane=writer.node, reason=options.gap, attrs=attrs)
    sources = open_sources(writer, options.run_id)
    watch = Watch(options.trace, options.parent)
    with Sampler(writer, sources, options.interval) as sampler:
        sampler.run(stop, watch)
    if not watch.folder_gone():
        writer.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rlinsight.collectors.devices",
        description="Sample the devices and the host of this node into a trace folder.",
    )
    parser.add_argument("trace", type=Path, help="the trace folder")
    parser.add_argument(
        "--interval", type=_interval, default=1.0, help="seconds between samples, 0.05 to 60"
    )
    parser.add_argument("--run-id", help="keep figures of the processes of this run")
    parser.add_argument("--node", help="name of this node in the trace (default: host name)")
    parser.add_argument("--gap", help="why samples are missing until now")
    parser.add_argument("--parent", type=int, help="end when this process ends")
    return parser


def _interval(text: str) -> float:
    value = float(text)
    if not 0.05 <= value <= 60:
        raise argparse.ArgumentTypeError(f"expected 0.05 to 60 seconds, found {text}")
    return value


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # A source whose driver call hangs must not keep the process from ending.
    sys.stderr.flush()
    os._exit(code)
