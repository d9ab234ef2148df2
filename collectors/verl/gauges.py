"""Counters of state that changes at events: a value is recorded when it differs from the last.

Between two rows the value is the earlier one, exactly; nothing is sampled away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_last: WeakKeyDictionary[TraceWriter, dict[tuple[str, str], float]] = WeakKeyDictionary()


def record_changes(
    rec: TraceWriter, lane: str, values: Mapping[str, float | None], *, ts_ns: int | None = None
) -> None:
    """Record each value that differs from the one recorded last; None (unknown) is left out."""
    last = _last.setdefault(rec, {})
    for name, value in values.items():
        if value is None or last.get((lane, name)) == value:
            continue
        last[lane, name] = value
        rec.counter(name, value, lane=lane, ts_ns=ts_ns)
