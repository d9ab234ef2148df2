"""The run's clock as the host's event loop uses it: in emulated seconds."""

from __future__ import annotations

import asyncio

from rlinsight.trace.run_clock import CLOCK


def now_s() -> float:
    """Return the run's time in seconds since its anchor."""
    return CLOCK.monotonic_ns() / 1e9


async def until(epoch_s: float) -> None:
    """Sleep until a time of the run's clock."""
    left_s = epoch_s - CLOCK.now_ns() / 1e9
    if left_s > 0:
        await asyncio.sleep(left_s * CLOCK.scale)
