"""Busy by span, idle by device: what each device did in each state.

A device whose driver reports a utilization of 1.0 has *a* kernel on it all the time; power tells
whether that kernel works. So both are read together, power as a share of the way from the idle
power of this device (5th percentile of its samples) to its limit:

* utilization below 0.5: `host_bound`, the device waits for the host that feeds it;
* utilization 0.5 to 0.95 at a power share below 0.25: `launch_bound`, many kernels too small
  to fill the device;
* utilization from 0.95 at a power share below 0.25: `spinning`, a kernel that waits, as
  collectives do for their slowest rank.

Judged are states in which a device should work: useful ones, `weight_sync` and `validate`. The
thresholds are conventions; the figures beside each finding are what counts.

The other way round, `outside_share` is the part of the time the driver saw a kernel on the device
that lies in bubbles: work that no record explains. It is the check of spans against the driver.

Worked example: 8 s of update_actor with a utilization of 0.13 is host_bound, 6.96 of the 8
device-seconds were idle by the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from rlinsight.analyzers.device_time.states import kind

Finding = Literal["host_bound", "launch_bound", "spinning"]

HOST_BOUND_BELOW: Final = 0.5
SPINNING_FROM: Final = 0.95
LOW_POWER_SHARE: Final = 0.25
_JUDGED_OVERHEAD: Final = frozenset({"weight_sync", "validate"})
#: A state that a device was in for less is too short to be judged by samples.
_LEAST_S: Final = 2.0

COUNTERS: Final = (
    "device_utilization",
    "device_sm_utilization",
    "device_memory_bandwidth_utilization",
    "device_power_w",
    "device_core_clock_mhz",
)


@dataclass(frozen=True)
class StateActivity:
    """What a device did in one state; means are over time, `sampled_s` is the time sampled.

    `idle_s` is the time the driver says no kernel ran. `power_share` is 0 at idle power and 1
    at the limit. `energy_j` is mean power x time.
    """

    device: str
    pool: str | None
    state: str
    sampled_s: float
    utilization: float | None
    sm_utilization: float | None
    memory_bandwidth: float | None
    power_w: float | None
    power_share: float | None
    energy_j: float | None
    idle_s: float | None
    finding: Finding | None


@dataclass(frozen=True)
class DeviceActivity:
    """One device over the window, and over its useful and overhead states together (`busy_*`).

    `outside_share` is the share of the driver's busy time in bubbles, None where it saw none.
    `clock_ratio` is its mean core clock in useful states over the median of all devices; None
    with a single device.
    """

    device: str
    pool: str | None
    sampled_s: float
    utilization: float | None
    power_w: float | None
    busy_s: float
    busy_utilization: float | None
    outside_share: float | None
    idle_power_w: float | None
    power_limit_w: float | None
    clock_ratio: float | None


def state_activity(
    pieces: pl.DataFrame, limits: dict[str, float], pools: dict[str, str]
) -> list[StateActivity]:
    """Return what each device did in each state; `limits` are power limits in W by device."""
    if pieces.is_empty():
        return []
    idle = idle_power(pieces)
    table = _means(pieces, ["device", "state"]).sort(
        "device", "sampled_s", descending=[False, True]
    )
    return [_state(row, idle, limits, pools) for row in table.iter_rows(named=True)]


def device_activity(
    pieces: pl.DataFrame, limits: dict[str, float], pools: dict[str, str]
) -> list[DeviceActivity]:
    """Return each device over the whole window and over its busy states."""
    if pieces.is_empty():
        return []
    idle = idle_power(pieces)
    kinds = {state: kind(state) for state in pieces["state"].unique()}
    busy = pieces.filter(pl.col("state").replace_strict(kinds) != "bubble")
    useful = pieces.filter(pl.col("state").replace_strict(kinds) == "useful")
    busy_means = {row["device"]: row for row in _means(busy, ["device"]).iter_rows(named=True)}
    clocks = dict(_means(useful, ["device"]).select("device", "clock").iter_rows())
    return [
        DeviceActivity(
            device=row["device"],
            pool=pools.get(row["device"]),
            sampled_s=row["sampled_s"],
            utilization=row["utilization"],
            power_w=row["power_w"],
            busy_s=busy_means.get(row["device"], {}).get("sampled_s", 0.0),
            busy_utilization=busy_means.get(row["device"], {}).get("utilization"),
            outside_share=_outside(row, busy_means.get(row["device"])),
            idle_power_w=idle.get(row["device"]),
            power_limit_w=limits.get(row["device"]),
            clock_ratio=_to_median(clocks, row["device"]),
        )
        for row in _means(pieces, ["device"]).sort("device").iter_rows(named=True)
    ]


def idle_power(pieces: pl.DataFrame) -> dict[str, float]:
    """Return the power in W below which a device is 5 % of its sampled time, by device."""
    low = pieces.group_by("device").agg(pl.col("device_power_w").quantile(0.05, "nearest"))
    return {device: value for device, value in low.iter_rows() if value is not None}


def finding(utilization: float | None, power_share: float | None, state: str) -> Finding | None:
    """Return what utilization and power say of a state in which a device should work."""
    if utilization is None or not (kind(state) == "useful" or state in _JUDGED_OVERHEAD):
        return None
    if utilization < HOST_BOUND_BELOW:
        return "host_bound"
    if power_share is None or power_share >= LOW_POWER_SHARE:
        return None
    return "spinning" if utilization >= SPINNING_FROM else "launch_bound"


def _outside(whole: dict[str, Any], busy: dict[str, Any] | None) -> float | None:
    """Return the share of the driver's busy time that is in no busy state."""
    if not whole["utilization"] or whole["used_s"] == 0:
        return None
    inside_s = busy["used_s"] if busy else 0.0
    return float(1 - inside_s / whole["used_s"])


def _means(pieces: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    seconds = (pl.col("end_ns") - pl.col("start_ns")) / 1e9
    columns = {
        "utilization": "device_utilization",
        "sm_utilization": "device_sm_utilization",
        "memory_bandwidth": "device_memory_bandwidth_utilization",
        "power_w": "device_power_w",
        "clock": "device_core_clock_mhz",
    }
    weighed = [_mean(pl.col(source), seconds).alias(name) for name, source in columns.items()]
    used = (pl.col("device_utilization") * seconds).sum().alias("used_s")
    return pieces.group_by(by).agg(seconds.sum().alias("sampled_s"), used, *weighed)


def _mean(value: pl.Expr, weight: pl.Expr) -> pl.Expr:
    known = weight.filter(value.is_not_null()).sum()
    return pl.when(known > 0).then((value * weight).sum() / known)


def _state(
    row: dict[str, float], idle: dict[str, float], limits: dict[str, float], pools: dict[str, str]
) -> StateActivity:
    device, state = str(row["device"]), str(row["state"])
    utilization, power, sampled_s = row["utilization"], row["power_w"], row["sampled_s"]
    share = _power_share(power, idle.get(device), limits.get(device))
    found = finding(utilization, share, state) if sampled_s >= _LEAST_S else None
    return StateActivity(
        device=device,
        pool=pools.get(device),
        state=state,
        sampled_s=sampled_s,
        utilization=utilization,
        sm_utilization=row["sm_utilization"],
        memory_bandwidth=row["memory_bandwidth"],
        power_w=power,
        power_share=share,
        energy_j=None if power is None else power * sampled_s,
        idle_s=None if utilization is None else sampled_s * (1 - utilization),
        finding=found,
    )


def _power_share(power: float | None, idle: float | None, limit: float | None) -> float | None:
    if power is None or idle is None or limit is None or limit <= idle:
        return None
    return (power - idle) / (limit - idle)


def _to_median(clocks: dict[str, float | None], device: str) -> float | None:
    known = sorted(value for value in clocks.values() if value is not None)
    own = clocks.get(device)
    if own is None or len(known) < 2:
        return None
    median = float(pl.Series(known).median())  # type: ignore[arg-type]
    return own / median if median else None
