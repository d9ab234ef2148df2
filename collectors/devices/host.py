"""The host: CPU, memory, /dev/shm, disk, network, and what each process of the run takes."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rlinsight.collectors.devices.board import Rate
from rlinsight.collectors.devices.source import SourceMissing

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board
    from rlinsight.collectors.devices.processes import RunProcesses

_SHM: Final = Path("/dev/shm")  # noqa: S108 - measured, not written to
_CGROUP: Final = Path("/sys/fs/cgroup")
_LOOPBACK: Final = "lo"
#: Processes are many and change slowly; the host as a whole is sampled every time.
_PROCESSES_S: Final = 5.0


class Host:
    """Reads the machine through psutil, and the memory limit of its container."""

    name = "host"
    shortest_s = 1.0

    def __init__(self, psutil: Any, node: str, trace: Path, processes: RunProcesses) -> None:
        self._psutil, self._node, self._trace = psutil, node, trace
        self._processes = processes
        self._known: dict[int, Any] = {}
        self._rates: defaultdict[str, Rate] = defaultdict(Rate)
        self._processes_due = 0.0
        self._noted = False
        self._in_cgroup = (_CGROUP / "memory.current").exists()
        self.device_uuids: dict[str, str] = {}
        psutil.cpu_percent(interval=None)  # the first answer means nothing

    def sample(self, board: Board) -> None:
        """Write the figures of the host, and every 5 s those of the processes."""
        self._note(board)
        board.stamp()
        ts_ns = time.monotonic_ns()  # rates are per real second, also on emulated devices
        lane = self._node
        busy = board.ask(lane, "cpu", lambda: self._psutil.cpu_percent(interval=None) / 100)
        board.put("host_cpu_utilization", busy, lane)
        board.ask(lane, "memory", lambda: self._memory(board))
        board.ask(lane, "cgroup", lambda: self._cgroup(board))
        board.ask(lane, "shm", lambda: self._shm(board))
        board.ask(lane, "disk", lambda: self._disk(board, ts_ns))
        board.ask(lane, "network", lambda: self._network(board, ts_ns))
        if time.monotonic() >= self._processes_due:
            self._processes_due = time.monotonic() + _PROCESSES_S
            board.ask(lane, "processes", lambda: self._each_process(board, ts_ns))

    def close(self) -> None:
        """Nothing is held open."""

    def _memory(self, board: Board) -> None:
        memory = self._psutil.virtual_memory()
        board.put("host_memory_used_bytes", memory.total - memory.available, self._node)
        board.put("host_memory_available_bytes", memory.available, self._node)
        board.put("host_memory_total_bytes", memory.total, self._node)

    def _cgroup(self, board: Board) -> None:
        if not self._in_cgroup:
            return
        used, limit = _number(_CGROUP / "memory.current"), _number(_CGROUP / "memory.max")
        board.put("host_cgroup_memory_used_bytes", used, self._node)
        board.put("host_cgroup_memory_limit_bytes", limit, self._node)

    def _shm(self, board: Board) -> None:
        if _SHM.is_dir():
            usage = self._psutil.disk_usage(str(_SHM))
            board.put("host_shm_used_bytes", usage.used, self._node)
            board.put("host_shm_total_bytes", usage.total, self._node)

    def _disk(self, board: Board, ts_ns: int) -> None:
        board.put(
            "host_disk_free_bytes", self._psutil.disk_usage(str(self._trace)).free, self._node
        )
        total = self._psutil.disk_io_counters()
        if total is not None:
            read = self._rates["read"].of(total.read_bytes, ts_ns)
            written = self._rates["write"].of(total.write_bytes, ts_ns)
            board.put("host_disk_read_bytes_per_s", read, self._node)
            board.put("host_disk_write_bytes_per_s", written, self._node)

    def _network(self, board: Board, ts_ns: int) -> None:
        cards = self._psutil.net_io_counters(pernic=True)
        outside = [card for name, card in cards.items() if name != _LOOPBACK]
        if outside:
            received = self._rates["rx"].of(sum(card.bytes_recv for card in outside), ts_ns)
            sent = self._rates["tx"].of(sum(card.bytes_sent for card in outside), ts_ns)
            board.put("host_network_rx_bytes_per_s", received, self._node)
            board.put("host_network_tx_bytes_per_s", sent, self._node)

    def _each_process(self, board: Board, ts_ns: int) -> None:
        pids = self._processes.refresh()
        for pid in self._known.keys() - pids:
            self._forget(pid)
        for pid in pids:
            try:
                self._process(board, pid, ts_ns)
            except self._psutil.NoSuchProcess:  # it ended between two looks
                self._forget(pid)
            except self._psutil.AccessDenied as error:
                board.gap(self._processes.lane(pid), "process", str(error))

    def _forget(self, pid: int) -> None:
        """Keep nothing of a process that ended: a run may start a new one for every reward."""
        self._known.pop(pid, None)
        self._rates.pop(self._processes.lane(pid), None)

    def _process(self, board: Board, pid: int, ts_ns: int) -> None:
        lane = self._processes.lane(pid)
        if pid not in self._known:
            self._known[pid] = self._psutil.Process(pid)
            self._rates[lane] = Rate()
            board.note("sampled_processes", {p: known.name() for p, known in self._known.items()})
        times = self._known[pid].cpu_times()
        cores = self._rates[lane].of(times.user + times.system, ts_ns)
        board.put("process_cpu_cores", cores, lane)
        board.put("process_memory_rss_bytes", self._known[pid].memory_info().rss, lane)

    def _note(self, board: Board) -> None:
        if self._noted:
            return
        self._noted = True
        facts = {
            "cpu_count": self._psutil.cpu_count(),
            "usable_cpus": len(os.sched_getaffinity(0)),
            "memory_total_bytes": self._psutil.virtual_memory().total,
        }
        board.note("host", facts)


def _number(path: Path) -> int | None:
    """Return a number of the kernel; None where there is no such file or it says `max`."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def open_host(node: str, trace: Path, processes: RunProcesses) -> Host:
    """Return the source; raises SourceMissing without psutil."""
    try:
        import psutil
    except ImportError as error:
        raise SourceMissing("`psutil` is not installed") from error
    return Host(psutil, node, trace, processes)
