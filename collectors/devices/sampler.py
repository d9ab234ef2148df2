"""The loop of a sampler process: one thread per source, and one that watches over them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final

from rlinsight.collectors.devices.board import Board
from rlinsight.collectors.devices.claims import complete_devices
from rlinsight.collectors.devices.source import Source, SourceMissing

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_WATCH_S: Final = 0.5
_CLAIMS_S: Final = 30.0
#: A query that takes this long is reported while it still hangs.
_HANGS_S: Final = 10.0


def open_sources(writer: TraceWriter, run_id: str | None) -> list[Source]:
    """Return the sources this machine has; the trace says which it lacks, and why."""
    from rlinsight.collectors.devices.host import open_host
    from rlinsight.collectors.devices.npu import open_npus
    from rlinsight.collectors.devices.nvml import open_nvml
    from rlinsight.collectors.devices.processes import RunProcesses

    processes = RunProcesses(run_id, writer.node)
    openers: dict[str, Callable[[], Source]] = {
        "host": lambda: open_host(writer.node, writer.path, processes),
        "nvml": lambda: open_nvml(writer.node, processes),
        "npu": lambda: open_npus(writer.node),
    }
    return [source for name, opener in openers.items() if (source := _open(writer, name, opener))]


def _open(writer: TraceWriter, name: str, opener: Callable[[], Source]) -> Source | None:
    try:
        source = opener()
    except SourceMissing as missing:
        writer.hook(f"devices.{name}", "skipped", str(missing))
    except Exception as error:
        writer.hook(f"devices.{name}", "failed", f"{type(error).__name__}: {error}")
    else:
        writer.hook(f"devices.{name}", "installed")
        return source
    return None


class Watch:
    """Tells when the run is over: its launcher ended, or its trace folder is gone."""

    def __init__(self, trace: Path, parent_pid: int | None) -> None:
        self._trace = trace
        # Held open, so that a folder made anew under the same name is never taken for it.
        self._folder = os.open(trace, os.O_RDONLY | os.O_DIRECTORY)
        self._parent = parent_pid
        self._is_child = parent_pid == os.getppid()

    def over(self) -> bool:
        """Return whether there is nothing left to sample for."""
        return self._parent_gone() or self.folder_gone()

    def folder_gone(self) -> bool:
        """Return whether the trace folder was deleted or replaced."""
        try:
            return not os.path.samestat(self._trace.stat(), os.fstat(self._folder))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # a file system that does not answer at this moment
            return False

    def _parent_gone(self) -> bool:
        if self._parent is None:
            return False
        if self._is_child:  # pids are reused; becoming somebody else's child is certain
            return os.getppid() != self._parent
        return not Path(f"/proc/{self._parent}").exists()


class Sampler:
    """Samples every source on its own thread, so that one that hangs stops only itself."""

    def __init__(self, writer: TraceWriter, sources: Sequence[Source], interval_s: float) -> None:
        self._writer = writer
        self._stop = threading.Event()
        self._loops = [_Loop(writer, source, interval_s, self._stop) for source in sources]
        self._uuids = {
            lane: uuid for source in sources for lane, uuid in source.device_uuids.items()
        }
        self._claims_due = 0.0

    def __enter__(self) -> Sampler:
        for loop in self._loops:
            loop.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        for loop in self._loops:
            loop.finish()
        if self._uuids and self._writer.path.is_dir():
            complete_devices(self._writer, self._uuids)

    def run(self, stop: threading.Event, watch: Watch) -> None:
        """Return when `stop` is set or the run is over."""
        while not stop.wait(_WATCH_S) and not watch.over():
            for loop in self._loops:
                loop.report_hang()
            self._complete_devices()

    def _complete_devices(self) -> None:
        if self._uuids and time.monotonic() >= self._claims_due:
            self._claims_due = time.monotonic() + _CLAIMS_S
            complete_devices(self._writer, self._uuids)


class _Loop(threading.Thread):
    def __init__(
        self, writer: TraceWriter, source: Source, interval_s: float, stop: threading.Event
    ) -> None:
        super().__init__(name=f"rlinsight-{source.name}", daemon=True)
        self._source, self._stopping = source, stop
        self._node = writer.node
        self._board = Board(writer, source.name)
        self._period_s = max(interval_s, source.shortest_s)
        self._busy_since: float | None = None
        self._hang_reported = False

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            self._busy_since = time.monotonic()
            # Each query is guarded on its own; this is for what is outside of any query.
            self._board.ask(self._node, f"{self._source.name}.sample", self._sample)
            self._busy_since = None
            due = self._next(due)

    def _sample(self) -> None:
        self._board.stamp()
        self._source.sample(self._board)

    def _next(self, due: float) -> float:
        """Return when to sample next; times that passed meanwhile are skipped and are a gap."""
        due += self._period_s
        late_s = time.monotonic() - due
        pace = f"{self._source.name}.pace"
        if late_s < self._period_s:
            self._board.answered(self._node, pace)
            return due
        self._board.gap(self._node, pace, "sampling takes longer than the interval")
        self._hang_reported = False
        return due + math.ceil(late_s / self._period_s) * self._period_s

    def report_hang(self) -> None:
        """Leave a marker, once, while a query of this source hangs (called from outside)."""
        since = self._busy_since
        if since is None or self._hang_reported or time.monotonic() - since < _HANGS_S:
            return
        self._hang_reported = True
        reason = f"no answer for {_HANGS_S:.0f} s"
        self._board.mark("gap", self._node, reason, {"query": f"{self._source.name}.sample"})

    def finish(self) -> None:
        """Wait for the thread, but not for a query that hangs."""
        self.join(timeout=2.0)
        if not self.is_alive():
            self._source.close()
