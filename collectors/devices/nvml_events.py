"""Errors that the driver announces: Xid messages and memory errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rlinsight.collectors.devices.board import Unsupported

if TYPE_CHECKING:
    from rlinsight.collectors.devices.board import Board
    from rlinsight.collectors.devices.nvml_devices import Gpu

_WHOLE_GPU: Final = 0xFFFFFFFF
_MOST_PER_SAMPLE: Final = 100


class Events:
    """Announcements since the start of the recording. Raises Unsupported when there are none."""

    def __init__(self, nvml: Any, gpus: Sequence[Gpu]) -> None:
        self._nvml = nvml
        whole = [gpu for gpu in gpus if not gpu.is_instance]
        self._lanes = {gpu.uuid: gpu.lane for gpu in whole}
        wanted = (
            nvml.nvmlEventTypeXidCriticalError
            | nvml.nvmlEventTypeSingleBitEccError
            | nvml.nvmlEventTypeDoubleBitEccError
        )
        masks = [(gpu, nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle) & wanted) for gpu in whole]
        if not any(mask for _, mask in masks):
            raise Unsupported("the driver announces no errors of these GPUs")
        self._set = nvml.nvmlEventSetCreate()
        for gpu, mask in masks:
            if mask:
                nvml.nvmlDeviceRegisterEvents(gpu.handle, mask, self._set)

    def write(self, board: Board) -> None:
        """Write a marker for each announcement since the previous call; does not wait."""
        for _ in range(_MOST_PER_SAMPLE):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError_Timeout:
                return
            self._write(board, event)

    def close(self) -> None:
        """Stop listening."""
        self._nvml.nvmlEventSetFree(self._set)

    def _write(self, board: Board, event: Any) -> None:
        uuid = self._nvml.nvmlDeviceGetUUID(event.device)
        lane = self._lanes.get(uuid.decode() if isinstance(uuid, bytes) else uuid, str(uuid))
        attrs = {} if event.gpuInstanceId == _WHOLE_GPU else {"gpu_instance": event.gpuInstanceId}
        if event.eventType == self._nvml.nvmlEventTypeXidCriticalError:
            board.mark("xid", lane, str(event.eventData), attrs)
        else:
            single = event.eventType == self._nvml.nvmlEventTypeSingleBitEccError
            board.mark("ecc_error", lane, "corrected" if single else "uncorrected", attrs)
