"""GPU performance monitoring (Hopper and later): what the cores did, not only that one ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rlinsight.collectors.devices.board import Unsupported

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board
    from rlinsight.collectors.devices.catalogue import CounterName
    from rlinsight.collectors.devices.nvml_devices import Gpu

_METRICS: Final[dict[str, CounterName]] = {
    "SM_UTIL": "device_sm_utilization",
    "SM_OCCUPANCY": "device_sm_occupancy",
    "ANY_TENSOR_UTIL": "device_tensor_utilization",
    "DRAM_BW_UTIL": "device_memory_bandwidth_utilization",
}


class Gpm:
    """Means over the time between two readings of one GPU or MIG instance.

    Raises Unsupported when the device has no such counters.
    """

    def __init__(self, nvml: Any, gpu: Gpu) -> None:
        self._nvml, self._gpu = nvml, gpu
        self._wanted = dict(_METRICS)
        if not nvml.nvmlGpmQueryDeviceSupport(gpu.parent or gpu.handle).isSupportedDevice:
            raise Unsupported("the device has no GPM counters")
        self._now, self._before = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._take(self._before)

    def write(self, board: Board) -> None:
        """Write the means since the previous call; a metric that is refused is named once."""
        nvml = self._nvml
        self._take(self._now)
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._wanted)
        request.sample1, request.sample2 = self._before, self._now
        for place, name in enumerate(self._wanted):
            request.metrics[place].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}")
        nvml.nvmlGpmMetricsGet(request)
        self._before, self._now = self._now, self._before
        self._write(board, request)

    def close(self) -> None:
        """Free the two samples."""
        for sample in (self._before, self._now):
            self._nvml.nvmlGpmSampleFree(sample)

    def _take(self, sample: Any) -> None:
        if self._gpu.is_instance:
            self._nvml.nvmlGpmMigSampleGet(self._gpu.parent, self._gpu.gpu_instance, sample)
        else:
            self._nvml.nvmlGpmSampleGet(self._gpu.handle, sample)

    def _write(self, board: Board, request: Any) -> None:
        for place, (name, counter) in enumerate(list(self._wanted.items())):
            metric = request.metrics[place]
            if metric.nvmlReturn == self._nvml.NVML_SUCCESS:
                # The first reading after a driver start may hold NaN, which is no value.
                board.put(counter, metric.value / 100, self._gpu.lane)
            else:
                del self._wanted[name]
                board.refused(self._gpu.lane, f"gpm.{name}", f"NVML code {metric.nvmlReturn}")
