"""Which part of a trace a command is about: windows, steps and pools given as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlinsight.errors import RlinsightError

if TYPE_CHECKING:
    from rlinsight.analyzers.result import Report
    from rlinsight.trace.reader import Trace


def chosen_window(trace: Trace, window: str | None, steps: str | None) -> tuple[int, int] | None:
    """Return the window in epoch nanoseconds, None where neither option is given.

    Raises RlinsightError for text that is no range, or steps that the trace does not have.
    """
    if window is not None and steps is not None:
        raise RlinsightError("`--window` and `--steps` both choose the window; give one of them")
    if window is not None:
        return _seconds(trace, window)
    return None if steps is None else _steps(trace, steps)


def known_pools(report: Report, asked: Sequence[str] | None) -> list[str]:
    """Return the asked-for pools, all without any. Raises RlinsightError for an unknown one."""
    unknown = [name for name in asked or () if name not in report.pools]
    if unknown:
        found = ", ".join(f"`{name}`" for name in report.pools) or "none"
        raise RlinsightError(f"expected a pool of this run ({found}), found `{unknown[0]}`")
    return list(asked or report.pools)


def of_pools(document: dict[str, Any], pools: Sequence[str]) -> dict[str, Any]:
    """Return the JSON form of a report with only what is of `pools` in its per-pool parts."""
    return document | {
        "pools": {name: pool for name, pool in document["pools"].items() if name in pools},
        **{
            part: [row for row in document[part] if row["owner"] in pools]
            for part in ("bubbles", "bubble_totals")
        },
    }


def _seconds(trace: Trace, text: str) -> tuple[int, int]:
    if trace.time_range is None:
        raise RlinsightError("a window needs a trace with recorded times, and this one has none")
    first, last = trace.time_range
    start, end = _range(text, "--window", "seconds, such as `60:120`")
    try:
        begin_ns = first if start is None else _time(first, start)
        end_ns = last if end is None else _time(first, end)
    except OverflowError as error:
        raise RlinsightError(
            f"expected `--window START:END` within what a time can hold, found `{text}`"
        ) from error
    if begin_ns >= end_ns:
        length = (last - first) / 1e9
        raise RlinsightError(
            f"expected `--window START:END` that ends after it starts, found `{text}` in a "
            f"recording of {length:.1f} s"
        )
    return begin_ns, end_ns


def _time(first_ns: int, seconds: float) -> int:
    """Return a time in epoch nanoseconds. Raises OverflowError where int64 does not hold it."""
    time_ns = first_ns + round(seconds * 1e9)
    time_ns.to_bytes(8, "big", signed=True)
    return time_ns


def _steps(trace: Trace, text: str) -> tuple[int, int]:
    import polars as pl

    low, high = _range(text, "--steps", "training steps, such as `3:8`")
    spans = trace.spans.filter((pl.col("activity") == "step") & pl.col("end_ns").is_not_null())
    number = pl.col("step")
    chosen = spans.filter(
        number.is_not_null()
        & (pl.lit(value=True) if low is None else number >= low)
        & (pl.lit(value=True) if high is None else number <= high)
    )
    bounds = chosen.select(pl.col("start_ns").min(), pl.col("end_ns").max()).collect().row(0)
    if bounds[0] is None:
        raise RlinsightError(f"expected ended training steps in `--steps {text}`, found none")
    return bounds[0], bounds[1]


def _range(text: str, option: str, what: str) -> tuple[float | None, float | None]:
    parts = text.split(":")
    try:
        if len(parts) != 2:
            raise ValueError(text)
        start, end = (_finite(part) if part else None for part in parts)
    except ValueError as error:
        raise RlinsightError(f"expected `{option} START:END` in {what}, found `{text}`") from error
    return start, end


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
