"""The bounded buffer of one table, filled by any thread and emptied by the flusher."""

from __future__ import annotations

import threading
from typing import Any

#: A buffer that is this full wakes the flusher before its time.
_EARLY_FLUSH_ROWS = 1 << 15


class TableBuffer:
    """Rows of one table, flattened into one list, plus the intervals that are still open.

    `list.extend` of a tuple and slicing off a prefix are each atomic under the interpreter
    lock, so no caller ever waits for the flusher. With `block`, a full buffer makes the
    caller wait instead of dropping the row: right for importers, wrong inside training.
    """

    def __init__(self, width: int, max_rows: int, wake: threading.Event, *, block: bool) -> None:
        self.width = width
        self.flat: list[Any] = []
        #: In the order in which they began; a set has none.
        self.open: dict[Any, None] = {}
        #: Those of them that were written as open, or shall not be.
        self.shown: set[Any] = set()
        self.written = 0
        self.dropped = 0
        self._limit = max_rows * width
        #: Length of `flat` from which on `append` has more to do than to extend it.
        self.early = min(_EARLY_FLUSH_ROWS, max_rows) * width
        self._wake = wake
        self._block = block
        self._room = threading.Event()
        self._counting = threading.Lock()

    def append(self, row: tuple[Any, ...]) -> None:
        """Add one row, or count it as dropped when the buffer is full."""
        flat = self.flat
        size = len(flat)
        if size >= self.early:
            if size >= self._limit and not self._wait_for_room():
                self.drop(1)
                return
            self._wake.set()
        flat.extend(row)

    def drop(self, rows: int) -> None:
        """Count rows that will not be written."""
        with self._counting:  # `+=` of two threads could lose one
            self.dropped += rows

    def take(self, max_rows: int) -> list[Any]:
        """Remove and return up to `max_rows` complete rows, flattened, oldest first."""
        flat = self.flat
        count = min(len(flat), max_rows * self.width)
        taken = flat[:count]
        del flat[:count]
        self._room.set()
        return taken

    def close(self) -> None:
        """Take no more rows: nobody will empty the buffer, and nobody must wait for that."""
        self._block, self._limit, self.early = False, 0, 0
        self._room.set()

    def __len__(self) -> int:
        return len(self.flat) // self.width

    def _wait_for_room(self) -> bool:
        while self._block and len(self.flat) >= self._limit:
            self._room.clear()
            self._wake.set()
            self._room.wait(0.1)
        return len(self.flat) < self._limit
