"""NVIDIA GPUs through NVML, the driver's management library."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rlinsight.collectors.devices.board import Rate
from rlinsight.collectors.devices.nvml_devices import Gpu, list_gpus, translated
from rlinsight.collectors.devices.nvml_events import Events
from rlinsight.collectors.devices.nvml_gpm import Gpm
from rlinsight.collectors.devices.nvml_queries import (
    MEMORY,
    QUERIES,
    SLOW_QUERIES,
    TOTALS,
    Query,
    Total,
    field_value,
)
from rlinsight.collectors.devices.source import SourceMissing

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board
    from rlinsight.collectors.devices.processes import RunProcesses

T = TypeVar("T")

_SLOW_S: Final = 10.0
#: Reasons that slow a device down against the will of the run. The power cap is not among
#: them: a busy GPU touches it all the time, and the counter has it.
_SLOWED: Final = {
    0x08: "HwSlowdown",
    0x20: "SwThermalSlowdown",
    0x40: "HwThermalSlowdown",
    0x80: "HwPowerBrakeSlowdown",
    0x400: "Reliability",
}


class Nvml:
    """Reads every GPU the run may see, and its MIG instances; each query guarded on its own.

    `nvml` is the module of `nvidia-ml-py`, initialized.
    """

    name = "nvml"
    shortest_s = 0.05

    def __init__(self, node: str, nvml: Any, processes: RunProcesses) -> None:
        self._node, self._nvml, self._processes = node, nvml, processes
        self._gpus = list_gpus(nvml, node)
        self.device_uuids = {gpu.lane: gpu.uuid for gpu in self._gpus}
        self._rates: defaultdict[tuple[str, str], Rate] = defaultdict(Rate)
        self._slowed: dict[str, str] = {}
        self._gpm: dict[str, Gpm] = {}
        self._events: Events | None = None
        self._noted = False
        self._slow_due = 0.0

    def sample(self, board: Board) -> None:
        """Write the figures of every GPU and the errors announced since the last time."""
        self._note(board)
        slow = time.monotonic() >= self._slow_due
        if slow:
            self._slow_due = time.monotonic() + _SLOW_S
        for gpu in self._gpus:
            board.stamp()
            self._sample(board, gpu, slow=slow)
        board.stamp()
        self._process_memory(board)
        self._ask(board, self._node, "events", lambda: self._listen().write(board))

    def close(self) -> None:
        """Let go of the library."""
        for gpm in self._gpm.values():
            gpm.close()
        if self._events is not None:
            self._events.close()
        self._nvml.nvmlShutdown()

    def _sample(self, board: Board, gpu: Gpu, *, slow: bool) -> None:
        if gpu.is_instance:
            self._write(board, gpu, [MEMORY])
        else:
            self._write(board, gpu, (*QUERIES, *SLOW_QUERIES) if slow else QUERIES)
            for total in TOTALS:
                self._write_rate(board, gpu, total)
        self._ask(board, gpu.lane, "gpm", lambda: self._gpm_of(gpu).write(board))

    def _write(self, board: Board, gpu: Gpu, queries: Iterable[Query]) -> None:
        for query in queries:
            answer = self._answer(board, gpu, query)
            if answer is None:
                continue
            for counter, value in query.values.items():
                board.put(counter, value(answer), gpu.lane)
            if query.name == "throttle_reasons":
                self._mark_slowdown(board, gpu.lane, answer)

    def _answer(self, board: Board, gpu: Gpu, query: Query) -> Any:
        call = query.call
        return self._ask(board, gpu.lane, query.name, lambda: call(self._nvml, gpu.handle))

    def _write_rate(self, board: Board, gpu: Gpu, total: Total) -> None:
        nvml = self._nvml
        units = self._ask(
            board,
            gpu.lane,
            total.name,
            lambda: field_value(nvml, gpu.handle, total.field, total.scope),
        )
        amount = None if units is None else units * total.unit_bytes
        rate = self._rates[gpu.lane, total.name].of(amount, time.monotonic_ns())
        board.put(total.counter, rate, gpu.lane)

    def _mark_slowdown(self, board: Board, lane: str, reasons: int) -> None:
        names = "+".join(name for bit, name in _SLOWED.items() if reasons & bit)
        before = self._slowed.get(lane, "")
        if names == before:
            return
        if before:
            board.mark("throttle_end", lane, before)
        if names:
            board.mark("throttle", lane, names)
        self._slowed[lane] = names

    def _process_memory(self, board: Board) -> None:
        """Memory of each process of the run, over all devices it uses.

        A GPU that is divided names the processes of its instances once more.
        """
        divided = {gpu.index for gpu in self._gpus if gpu.is_instance}
        used: Counter[int] = Counter()
        for gpu in self._gpus:
            if gpu.index in divided and not gpu.is_instance:
                continue
            for process in self._running(board, gpu):
                if process.pid in self._processes.pids and process.usedGpuMemory is not None:
                    used[process.pid] += process.usedGpuMemory
        for pid, amount in used.items():
            board.put("process_device_memory_bytes", amount, self._processes.lane(pid))

    def _running(self, board: Board, gpu: Gpu) -> list[Any]:
        nvml, handle = self._nvml, gpu.handle
        running = self._ask(
            board, gpu.lane, "processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        )
        return running or []

    def _gpm_of(self, gpu: Gpu) -> Gpm:
        if gpu.lane not in self._gpm:
            self._gpm[gpu.lane] = Gpm(self._nvml, gpu)
        return self._gpm[gpu.lane]

    def _listen(self) -> Events:
        if self._events is None:
            self._events = Events(self._nvml, self._gpus)
        return self._events

    def _ask(self, board: Board, lane: str, query: str, call: Callable[[], T]) -> T | None:
        return board.ask(lane, query, lambda: translated(self._nvml, call))

    def _note(self, board: Board) -> None:
        if self._noted:
            return
        self._noted = True
        board.note("sampled_devices", {gpu.lane: self._facts(gpu) for gpu in self._gpus})
        driver = board.ask(self._node, "driver", self._nvml.nvmlSystemGetDriverVersion)
        board.note("nvidia_driver", driver)

    def _facts(self, gpu: Gpu) -> dict[str, Any]:
        return {
            "kind": "cuda",
            "uuid": gpu.uuid,
            "index": gpu.index,
            "name": self._nvml.nvmlDeviceGetName(gpu.handle),
            "mig_instance": gpu.gpu_instance,
            "source": "nvml",
        }


def open_nvml(node: str, processes: RunProcesses) -> Nvml:
    """Return the source, or raise SourceMissing without `nvidia-ml-py`, driver or GPU."""
    try:
        import pynvml
    except ImportError as error:
        raise SourceMissing("`nvidia-ml-py` is not installed (extra `nvidia`)") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise SourceMissing(f"NVML: {error}") from error
    return Nvml(node, pynvml, processes)
