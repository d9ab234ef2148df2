"""What NVML is asked about a GPU, and the counters that each answer fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rlinsight.collectors.devices.catalogue import CounterName

Call = Callable[[Any, Any], Any]
Scale = Callable[[Any], float]


@dataclass(frozen=True)
class Query:
    """One call `(nvml, handle)` and what its answer says, by counter."""

    name: str
    call: Call
    values: Mapping[CounterName, Scale]


@dataclass(frozen=True)
class Total:
    """A field that only grows, in units of `unit_bytes`; the counter is its rate."""

    name: str
    field: str
    counter: CounterName
    scope: int = 0
    unit_bytes: int = 1


def _plain(value: Any) -> float:
    return float(value)


def _thousandth(value: Any) -> float:
    return float(value) / 1000


def _throttle_reasons(nvml: Any) -> Callable[[Any], int]:
    """Return the call under its old name, which every driver so far has, else its new one."""
    old = getattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    return old or nvml.nvmlDeviceGetCurrentClocksEventReasons  # type: ignore[no-any-return]


#: Also answered by a MIG instance. What is not free counts as used: the driver's reserve too.
MEMORY: Final = Query(
    "memory",
    lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle),
    {
        "device_memory_used_bytes": lambda memory: memory.total - memory.free,
        "device_memory_total_bytes": lambda memory: memory.total,
    },
)

QUERIES: Final = (
    MEMORY,
    Query(
        "utilization",
        lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle),
        {
            "device_utilization": lambda rates: rates.gpu / 100,
            "device_memory_utilization": lambda rates: rates.memory / 100,
        },
    ),
    Query(
        "power",
        lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle),
        {"device_power_w": _thousandth},
    ),
    Query(
        "energy",
        lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        {"device_energy_j": _thousandth},
    ),
    Query(
        "temperature",
        lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        {"device_temperature_c": _plain},
    ),
    Query(
        "core_clock",
        lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        {"device_core_clock_mhz": _plain},
    ),
    Query(
        "memory_clock",
        lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        {"device_memory_clock_mhz": _plain},
    ),
    Query(
        "throttle_reasons",
        lambda nvml, handle: _throttle_reasons(nvml)(handle),
        {"device_throttle_reasons": _plain},
    ),
)

#: Asked every 10 s.
SLOW_QUERIES: Final = (
    Query(
        "power_limit",
        lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        {"device_power_limit_w": _thousandth},
    ),
    Query(
        "ecc_corrected",
        lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        {"device_ecc_corrected": _plain},
    ),
    Query(
        "ecc_uncorrected",
        lambda nvml, handle: nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        {"device_ecc_uncorrected": _plain},
    ),
)

_ALL_LINKS = 0xFFFFFFFF

#: Totals, not nvmlDeviceGetPcieThroughput: that call waits 20 ms for a window of its own.
TOTALS: Final = (
    Total("pcie_rx", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", "device_pcie_rx_bytes_per_s"),
    Total("pcie_tx", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", "device_pcie_tx_bytes_per_s"),
    Total(
        "nvlink_rx",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
        "device_nvlink_rx_bytes_per_s",
        _ALL_LINKS,
        1024,
    ),
    Total(
        "nvlink_tx",
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
        "device_nvlink_tx_bytes_per_s",
        _ALL_LINKS,
        1024,
    ),
)


def field_value(nvml: Any, handle: Any, field: str, scope: int) -> float:
    """Return the value of one NVML field; raises NVMLError as any other query does."""
    answer = nvml.nvmlDeviceGetFieldValues(handle, [(getattr(nvml, field), scope)])[0]
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    members = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    }
    return float(getattr(answer.value, members[answer.valueType]))
