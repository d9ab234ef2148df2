"""Ctrl-C and SIGTERM while a run is supervised: the first asks, the second insists."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Counts signals instead of dying of them, for the duration of a `with` block."""

    def __init__(self) -> None:
        self.count = 0
        self.first: signal.Signals | None = None
        self._arrived = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def wait(self, timeout_s: float) -> None:
        """Sleep, but not past a signal."""
        self._arrived.wait(timeout_s)
        self._arrived.clear()

    def __enter__(self) -> Interrupts:
        # Only the main thread may do this; elsewhere the caller has to handle signals.
        if threading.current_thread() is threading.main_thread():
            self._before = {n: signal.signal(n, self._handle) for n in _SIGNALS if _is_heard(n)}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.first = self.first or signal.Signals(number)
        self._arrived.set()


def _is_heard(number: signal.Signals) -> bool:
    """Whether a signal is meant for us: under `nohup` the end of the terminal is not."""
    return number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
