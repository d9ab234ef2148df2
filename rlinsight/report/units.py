"""Numbers for people: always with a unit, `-` where unknown, never rounded to nothing."""

from __future__ import annotations

import math


def seconds(value: float | None) -> str:
    """Return a time with three significant digits."""
    if value is None:
        return "-"
    if value == 0:
        return "0 s"
    for unit, scale in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        limit = scale * (10 if unit in ("h", "min") else 1)
        if abs(value) >= limit:
            return f"{three(value / scale)} {unit}"
    return f"{value * 1e9:.0f} ns"


def device_seconds(value: float) -> str:
    """Return a number of device-seconds to the millisecond, a small one with three digits."""
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"


def percent(ratio: float | None) -> str:
    """Return a ratio in percent; a small one, and one just below all, keep a significant digit."""
    if ratio is None:
        return "-"
    value = ratio * 100
    if value and abs(value) < 0.1:
        return f"{value:.2g} %"
    if 99.95 <= value < 100:
        return f"{100 - float(f'{100 - value:.1g}'):.10g} %"
    return f"{value:.1f} %"


def relative(value: float | None, low: float | None, high: float | None) -> str:
    """Return a relative change with its interval: `+12.3 % (+9.1 to +15.2)`."""
    if value is None:
        return "unknown"
    text = f"{value * 100:+.1f} %"
    if low is None or high is None:
        return text
    return f"{text} ({low * 100:+.1f} to {high * 100:+.1f})"


def number(value: float | None, unit: str = "") -> str:
    """Return a number with three significant digits, and its unit."""
    text = "-" if value is None else three(value)
    return f"{text} {unit}".rstrip()


def amount(value: float | None, unit: str) -> str:
    """Return a value of a metric with its unit; a `share` is a ratio, shown in percent."""
    if unit == "share":
        return percent(value)
    if unit == "s":
        return seconds(value)
    return number(value, unit)


def count(value: int | None) -> str:
    """Return a whole number."""
    return "-" if value is None else f"{value}"


def counted(value: int, thing: str) -> str:
    """Return `1 device`, `2 devices`."""
    return f"{value:,} {thing}" if value == 1 else f"{value:,} {thing}s"


def three(value: float) -> str:
    """Return three significant digits, whole numbers in full."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return (
        f"{value:.{digits}f}"
        if 0 < digits <= 5
        else f"{value:.3g}"
        if digits > 5
        else f"{value:.0f}"
    )
