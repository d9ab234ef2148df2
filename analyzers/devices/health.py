"""Devices that were slowed down or announced errors, named.

A slow-down is what the driver calls one (temperature, power brake, hardware), not the power cap,
which a busy device touches all the time. A device is `slow` when its core clock in useful states
stays more than 5 % below the median of all devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from rlinsight.analyzers.devices.activity import DeviceActivity

SLOW_BELOW: Final = 0.95
_KINDS: Final = ("throttle", "throttle_end", "xid", "ecc_error", "health")


@dataclass(frozen=True)
class DeviceTrouble:
    """What went wrong with one device inside the window.

    `throttled_s` is the time between the driver's markers; `errors` are its Xid numbers, memory
    errors and health states as it named them.
    """

    device: str
    throttled_s: float
    reasons: tuple[str, ...]
    errors: tuple[str, ...]
    clock_ratio: float | None
    slow: bool


def troubles(
    markers: pl.DataFrame, devices: list[DeviceActivity], window: tuple[int, int]
) -> list[DeviceTrouble]:
    """Return the devices with something to tell; healthy ones are left out."""
    chosen = markers.filter(pl.col("kind").cast(pl.String).is_in(_KINDS)).sort("ts_ns")
    clocks = {device.device: device.clock_ratio for device in devices}
    names = sorted({*chosen["lane"].cast(pl.String).drop_nulls(), *clocks})
    found = (
        _trouble(name, chosen.filter(pl.col("lane").cast(pl.String) == name), clocks, window)
        for name in names
    )
    return [entry for entry in found if entry.slow or entry.errors or entry.throttled_s > 0]


def _trouble(
    device: str, rows: pl.DataFrame, clocks: dict[str, float | None], window: tuple[int, int]
) -> DeviceTrouble:
    throttled_ns, since, reasons, errors = 0, None, [], []
    for ts_ns, kind, reason in rows.select("ts_ns", "kind", "reason").iter_rows():
        if kind == "throttle":
            since = ts_ns
            reasons.append(reason or "unknown")
        elif kind == "throttle_end":
            throttled_ns += _inside(window[0] if since is None else since, ts_ns, window)
            since = None
        elif window[0] <= ts_ns <= window[1]:
            errors.append(f"{kind} {reason}")
    if since is not None:
        throttled_ns += _inside(since, window[1], window)
    ratio = clocks.get(device)
    return DeviceTrouble(
        device=device,
        throttled_s=throttled_ns / 1e9,
        reasons=tuple(dict.fromkeys(reasons)),
        errors=tuple(dict.fromkeys(errors)),
        clock_ratio=ratio,
        slow=ratio is not None and ratio < SLOW_BELOW,
    )


def _inside(start: int, end: int, window: tuple[int, int]) -> int:
    return max(0, min(end, window[1]) - max(start, window[0]))
