"""Every counter and marker the samplers write: the contract with the analysis.

`docs/hardware.md` explains each; a name that is not here cannot be written.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

CounterName = Literal[
    # lane = device id, `<node>/<device>`
    "device_utilization",
    "device_memory_utilization",
    "device_memory_used_bytes",
    "device_memory_total_bytes",
    "device_power_w",
    "device_power_limit_w",
    "device_energy_j",
    "device_temperature_c",
    "device_core_clock_mhz",
    "device_memory_clock_mhz",
    "device_throttle_reasons",
    "device_ecc_corrected",
    "device_ecc_uncorrected",
    "device_pcie_rx_bytes_per_s",
    "device_pcie_tx_bytes_per_s",
    "device_nvlink_rx_bytes_per_s",
    "device_nvlink_tx_bytes_per_s",
    "device_sm_utilization",
    "device_sm_occupancy",
    "device_tensor_utilization",
    "device_memory_bandwidth_utilization",
    # lane = `<node>`
    "host_cpu_utilization",
    "host_memory_used_bytes",
    "host_memory_available_bytes",
    "host_memory_total_bytes",
    "host_cgroup_memory_used_bytes",
    "host_cgroup_memory_limit_bytes",
    "host_shm_used_bytes",
    "host_shm_total_bytes",
    "host_disk_free_bytes",
    "host_disk_read_bytes_per_s",
    "host_disk_write_bytes_per_s",
    "host_network_rx_bytes_per_s",
    "host_network_tx_bytes_per_s",
    # lane = `<node>/pid-<pid>`
    "process_cpu_cores",
    "process_memory_rss_bytes",
    "process_device_memory_bytes",
]

MarkerKind = Literal["gap", "gap_end", "throttle", "throttle_end", "xid", "ecc_error", "health"]

COUNTERS: Final[tuple[CounterName, ...]] = get_args(CounterName)
MARKERS: Final[tuple[MarkerKind, ...]] = get_args(MarkerKind)
