"""verl's own waits, on the run's clock.

A wrapper may be pickled together with a class that Ray exports by value, so it imports what it
needs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


class ScaledAsyncio:
    """The module `asyncio` with a `sleep` on the run's clock."""

    def __getattr__(self, name: str) -> Any:
        import asyncio

        return getattr(asyncio, name)

    def sleep(self, delay: float, result: Any = None) -> Any:
        """Sleep for `delay` emulated seconds."""
        import asyncio

        from rlinsight.trace.run_clock import CLOCK

        return asyncio.sleep(delay * CLOCK.scale, result)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ScaledAsyncio, ())


def scaled_poll(original: Function) -> Function:
    """Poll on the run's clock."""

    def init(buffer: Any, *args: Any, **kwargs: Any) -> None:
        from rlinsight.trace.run_clock import CLOCK

        original(buffer, *args, **kwargs)
        buffer.poll_interval *= CLOCK.scale

    return init
