"""Counters of state that changes at events: a value is recorded when it differs from the last.

Between two rows the value is the earlier one, exactly; nothing is sampled away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlinsight.trace.writer import TraceWriter

_last: dict[tuple[int, str, str], float] = {}


def record_changes(
    rec: TraceWriter, lane: str, values: Mapping[str, float | None], *, ts_ns: int | None = None
) -> None:
    """Record each value that differs from the one recorded last; None (unknown) is left out."""
    for name, value in values.items():
        key = (id(rec), lane, name)
        if value is None or _last.get(key) == value:
            continue
        _last[key] = value
        rec.counter(name, value, lane=lane, ts_ns=ts_ns)
